"""What functions and iterators written in C do, in Python.

The interpreter runs these in place of the C code, instruction by instruction, so that callbacks, exceptions and
laziness are what they are in user code. Each file is about one concept and registers its functions for the real
callables (`model_registry`). Frames of this package are invisible to the program. Nothing here may look at the
interpreter: this is plain Python, and the tests run it as such.
"""
