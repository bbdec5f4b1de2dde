"""Scheduling: which nodes become one kernel, over which loops, and in what order kernels and extern calls run."""
