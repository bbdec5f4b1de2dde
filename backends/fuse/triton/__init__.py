"""Kernels for NVIDIA GPUs: Triton source from the loop IR, and machine code from that source."""
