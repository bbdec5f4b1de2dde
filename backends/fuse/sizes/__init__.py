"""Sizes that are left open: what stands for one in lowering, and the variant that fits the sizes of a call."""
