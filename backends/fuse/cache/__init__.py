"""The disk cache: kernels and plans that were made before, by this process or another."""
