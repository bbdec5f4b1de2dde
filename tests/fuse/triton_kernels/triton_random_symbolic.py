"""Random networks whose input has an open number of rows, through Triton's interpreter as triton_symbolic.py has
programs: prints as JSON for each how many variants there were, and what is not as eager has it.

    python triton_random_symbolic.py FIRST COUNT

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.targets.lookup import standing_in
from framejit.backends.fuse.triton.tiles import tile
from framejit.config import config
from tests.fuse.operators.operator_wall_triton import do_without_gpu
from tests.fuse.symbolic_graphs import Input, SymbolicProgram
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_random_networks import DATA_DECIDES, OF_THEIR_OWN
from tests.fuse.triton_kernels.triton_symbolic import INT32_MAX, LIMITS, FewParts, SymbolicRun
from tests.making_cpu import MakingCpu
from tests.training.random_networks import Network

CLOSE = 5e-3
OF_EQUALS = ("sort(", "median(", "topk(")
"""Functions whose gradients and places are anybody's where elements are equal."""


def compared(seed: int) -> list[Any] | None:
    """[how many variants there were, what differs in words]; None for a network that is not compared."""
    network = Network(seed, torch.float32)
    if any(name in network.source for name in (*OF_THEIR_OWN, *DATA_DECIDES, *OF_EQUALS)):
        return None

    def function(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        return network.function(x, [*parameters])

    rows, *others = network.sizes
    inputs = (Input(("n", *others)), *(Input(sizes) for sizes in network.parameters))
    program = SymbolicProgram(function, inputs, ("n",), LIMITS, False)
    for size in (rows + 2, rows + 3, rows + 7, max(rows, 2)):
        torch.manual_seed(seed + size)
        given = [each.real({"n": size}) for each in inputs]
        try:
            wanted = function(*given)
        except (RuntimeError, ValueError, IndexError):  # it takes the other number of rows only
            continue
        try:
            (got,) = SymbolicRun(program.variant({"n": size}), (size,)).run([x.clone() for x in given])
        except NotFusable as e:
            return [0, "" if "size does not exist" in str(e) else str(e)]
        if not torch.allclose(got, wanted, atol=CLOSE, rtol=CLOSE, equal_nan=True):
            return [len(program.variants), f"{size} rows: {got} for {wanted}\n{network.source}"]
    return [len(program.variants), ""]


def main(first: int, count: int) -> None:
    triton_standins.install()
    do_without_gpu()
    tile.INT32_MAX = INT32_MAX
    found: dict[str, Any] = {}
    with config.patch(debug=True), torch.no_grad(), standing_in("cuda", FewParts), standing_in("cpu", MakingCpu):
        for seed in range(first, first + count):
            try:
                found[str(seed)] = compared(seed)
            except Exception:
                found[str(seed)] = [0, traceback.format_exc()]
    json.dump({seed: report for seed, report in found.items() if report is not None}, sys.stdout)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
