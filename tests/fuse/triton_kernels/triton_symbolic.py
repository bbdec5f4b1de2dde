"""Run the programs of symbolic_cases.py over their sizes, with the same sources for all sizes of a variant, through
Triton's interpreter; print as JSON what differs from eager, how many variants there were, and the sources.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.random_numbers.drawn_again import drawing_as_kernels
from framejit.backends.fuse.targets.cuda import CudaTarget
from framejit.backends.fuse.targets.lookup import standing_in
from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.backends.fuse.triton.tiles import tile
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU
from framejit.config import config
from tests.fuse.lowering.lowering_checks import compare
from tests.fuse.operators.operator_wall_triton import do_without_gpu
from tests.fuse.symbolic_cases import CASES, SymbolicCase
from tests.fuse.symbolic_graphs import SymbolicProgram, SymbolicVariant
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile
from tests.making_cpu import MakingCpu

LIMITS = replace(WITHOUT_A_GPU, longest_row=256, longest_block=256, multiprocessors=4)
"""So small that the interpreter gets to what lies beyond them."""
INT32_MAX = 100_000


class FewParts(CudaTarget):
    """A GPU for which long rows are split into few parts."""

    long_row = 2000
    row_parts = 16


class SymbolicRun(TritonRun):
    """A variant, run for given sizes."""

    def __init__(self, variant: SymbolicVariant, sizes: tuple[int, ...]) -> None:
        graph, self.sources = variant.closed(sizes)
        super().__init__(graph, first_tile, lambda source: None)

    def source(self, kernel: Kernel) -> TritonSource:
        return self.sources[kernel]


def sweep(program: SymbolicProgram, case: SymbolicCase, order: Sequence[tuple[int, ...]]) -> list[str]:
    """What differs from eager for sizes that come in an order."""
    failures = []
    for numbers in order:
        sizes = dict(zip(case.names, numbers))
        inputs = [given.real(sizes) for given in case.inputs]
        try:
            variant = program.variant(sizes)
            torch.manual_seed(numbers[0])
            (result,) = SymbolicRun(variant, numbers).run(inputs)
            torch.manual_seed(numbers[0])
            compare(result, drawing_as_kernels(case.function)(*inputs), case.atol, case.atol)
        except Exception:
            failures.append(f"{sizes}\n{traceback.format_exc()}")
    return failures


def run(case: SymbolicCase) -> dict[str, Any]:
    program, backwards = (
        SymbolicProgram(case.function, case.inputs, case.names, LIMITS, case.grows) for _ in range(2)
    )
    # the other way round, variants are made for other sizes than before, and have to be right for those
    failures = sweep(program, case, case.sweep) + sweep(backwards, case, case.sweep[::-1])
    sources = {
        source.key: source
        for each in (program, backwards)
        for variant in each.variants
        for source in variant.sources.values()
    }
    written = [asdict(replace(source, scalars=(), programs=0)) for source in sources.values()]
    conditions = [[str(condition) for condition in variant.conditions] for variant in program.variants]
    return {"failures": failures, "variants": conditions, "sources": written}


def main(names: list[str]) -> None:
    triton_standins.install()
    do_without_gpu()
    tile.INT32_MAX = INT32_MAX
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with config.patch(debug=True), torch.no_grad(), standing_in("cuda", FewParts), standing_in("cpu", MakingCpu):
        json.dump({name: run(CASES[name]) for name in names or CASES}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
