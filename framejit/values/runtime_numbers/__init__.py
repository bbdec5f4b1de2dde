"""Python numbers that are known only at run time: read from tensors, or computed from sizes that are left open."""
