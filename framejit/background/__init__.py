"""Compiling beside the program: a copy of the process compiles a call, and leaves the entry on the disk."""
