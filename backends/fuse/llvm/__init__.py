"""Kernels for CPUs, through LLVM. `kernel.compile_cpu_kernel` is the way in, `llvm_support.supports` says what can be
done.

`plan` decides how loops are run; `loops` and `reduction_loops` write them, `emit` the expressions in them,
`instructions`, `maths`, `memory` and `accumulators` their parts; `jit` makes machine code of the text.
"""
