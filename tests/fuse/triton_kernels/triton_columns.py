"""Reductions over columns that are split into parts, by Triton's interpreter; prints as JSON the number of kernels of
each case, and what differs from eager; of batch norms with their running statistics, at sizes of models, the kernels'
sources.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets import cuda
from framejit.backends.fuse.triton.kernel_source import triton_source
from framejit.config import config
from tests.fuse.operators.operator_wall_triton import do_without_gpu
from tests.fuse.stages import lower
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile

DIMS = (0, 2, 3)


def moments(x: torch.Tensor) -> Any:
    found = torch.ops.aten.var_mean.correction(x, DIMS, correction=0, keepdim=True)
    return found[0], found[1]


def sums(x: torch.Tensor) -> Any:
    return x.sum(DIMS), (x * 2).relu().square().sum(DIMS), x.amax(DIMS)


def data(offset: float, spread: float) -> Any:
    return lambda sizes: torch.randn(sizes) * spread + offset


def outlier(sizes: tuple[int, ...]) -> torch.Tensor:
    x = torch.randn(sizes)
    x[0, :, 0, 0] = 1e4
    return x


def infinite(sizes: tuple[int, ...]) -> torch.Tensor:
    x = torch.randn(sizes)
    x[1, 3, 2, 1], x[2, 5, 0, 0] = torch.inf, torch.nan
    return x


SIZES = {"even": (6, 16, 10, 7), "odd": (5, 3, 13, 11), "one image": (1, 8, 24, 9)}
CASES: dict[str, tuple[Any, Any, tuple[int, ...], float]] = {
    **{f"moments, {name}": (moments, data(0.5, 2), sizes, 1e-5) for name, sizes in SIZES.items()},
    **{f"sums, {name}": (sums, data(0, 1), sizes, 1e-5) for name, sizes in SIZES.items()},
    "moments far from zero": (moments, data(1000, 0.01), SIZES["even"], 2e-3),
    "moments with an outlier": (moments, outlier, SIZES["even"], 1e-5),
    "moments of what is not finite": (moments, infinite, SIZES["even"], 1e-5),
}


BATCHES = ((64, 64, 112, 112), (64, 256, 56, 56), (64, 1024, 14, 14), (50, 2048, 7, 7))


def batch_norm(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Any:
    found = torch.ops.aten.var_mean.correction(x.float(), DIMS, correction=0, keepdim=True)
    scale = (found[0] + 1e-5).rsqrt()
    flat = found[1].flatten(), found[0].flatten()
    return (x - found[1]) * scale, scale, mean * 0.9 + flat[0] * 0.1, variance * 0.9 + flat[1] * 0.1, found[1]


def sources(sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    gm = fx.symbolic_trace(batch_norm)
    with FakeTensorMode():
        x = torch.empty(sizes, dtype=torch.bfloat16, device="cuda").to(memory_format=torch.channels_last)
        fakes = [x, torch.empty(sizes[1], device="cuda"), torch.empty(sizes[1], device="cuda")]
    for node, fake in zip(gm.graph.nodes, fakes):
        node.meta["val"] = fake
    return [asdict(triton_source(node)) for node in schedule(lower(gm, fakes)) if isinstance(node, Kernel)]


def run(function: Any, made: Any, sizes: tuple[int, ...], tolerance: float) -> list[Any]:
    x = made(sizes).contiguous(memory_format=torch.channels_last)
    gm = fx.symbolic_trace(function)
    with FakeTensorMode():
        fake = torch.empty_strided(x.shape, x.stride(), device="cuda")
    next(iter(gm.graph.nodes)).meta["val"] = fake
    lowered = lower(gm, [fake])
    graph = replace(lowered, nodes=list(schedule(lowered)))
    got = TritonRun(graph, first_tile, lambda source: None).run([x])
    for one, expected in zip(got, function(x.double())):
        torch.testing.assert_close(one.double(), expected, rtol=tolerance, atol=1e-5, equal_nan=True)
    return [sum(isinstance(node, Kernel) for node in graph.nodes), ""]


def main() -> None:
    triton_standins.install()
    do_without_gpu()
    torch.manual_seed(0)
    report: dict[str, list[Any]] = {}
    with torch.no_grad():
        report["sources"] = [source for sizes in BATCHES for source in sources(sizes)]
    cuda.COLUMNS, cuda.LARGE = 8, 64
    with config.patch(debug=True), torch.no_grad():
        for name, case in CASES.items():
            try:
                report[name] = run(*case)
            except Exception:
                report[name] = [0, traceback.format_exc()]
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
