"""Kernels for CPUs, through LLVM. `kernel.compile_cpu_kernel` is the way in, `support.supports` says what can be done.

`plan` decides how loops are run; `loops` and `reduction_loops` write them, `emit` the expressions in them,
`operations`, `maths`, `memory` and `reductions` their parts; `jit` makes machine code of the text.
"""
