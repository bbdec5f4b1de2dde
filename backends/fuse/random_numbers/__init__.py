"""Random numbers that kernels make themselves: as operations of graphs, and which of ATen's operations they stand
for."""
