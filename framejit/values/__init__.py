"""Symbolic values: what the interpreter knows about each Python object in a frame.  One concept a file."""
