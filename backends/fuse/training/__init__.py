"""Graphs that need gradients: forward and backward recorded together, parted, and compiled as two."""
