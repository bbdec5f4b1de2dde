"""Which tiles a kernel may have: sizes of blocks, warps, what one program does."""
