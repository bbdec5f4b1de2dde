"""Tensors without memory: what operations give, asked of torch without running them, and without its slow imports."""
