"""Convolutions and matrix products: kernels whose sums stay in registers, tile by tile."""
