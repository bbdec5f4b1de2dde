"""Tensors, and the functions of torch that take them or functions over them."""
