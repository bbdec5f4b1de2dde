"""Random programs over tensors, as source text that depends on nothing but a seed. A file for each family of
statements."""
