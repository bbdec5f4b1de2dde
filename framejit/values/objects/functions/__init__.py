"""Functions and methods, written in Python or in C, what their arguments are, and generators."""
