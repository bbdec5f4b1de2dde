"""Numpy's arrays, numbers and functions, as tensors over the same memory."""
