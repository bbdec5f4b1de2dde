"""The loop IR: expressions, the indices by which they read memory, and loop nests that store them."""
