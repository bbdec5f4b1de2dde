"""Matrix products with few rows by Triton's interpreter: prints as JSON for each case the kernels, what ATen is left to
do, and what is further from float64 than eager is. Each case has the tile that is compiled without tuning, the last one
that it may have, and one between, another in each case.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.cuda import CudaTarget
from framejit.backends.fuse.triton.tiles.blocks import AnyTile, candidates
from framejit.config import config
from tests.fuse.operators.operator_wall_triton import do_without_gpu
from tests.fuse.stages import lower
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, in_many_blocks

Made = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
ROUNDING = {BF16: 2**-8, F16: 2**-11, F32: 2**-20, F64: 2**-48}
"""Of the norm of a result: what a sum in another order, rounded once, may be off by."""


def r(*sizes: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    h = x.float()
    return weight * (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def gated(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(F.linear(x, gate)) * F.linear(x, up)


def block(x: Any, norm: Any, gate: Any, up: Any, down: Any) -> Any:
    return x + F.linear(gated(rms(x, norm), gate, up), down)


def two_layers(x: Any, out: Any, norm: Any, gate: Any, up: Any, down: Any) -> Any:
    return block(x + F.linear(x, out), norm, gate, up, down)


def one_waits(x: Any, one: Any, other: Any) -> Any:
    """Two products of one input, of which the second takes what the first gave, too."""
    first = F.linear(x, one)
    return first, F.linear(x * first.abs().amax().sign(), other)


def written_between(x: Any, one: Any, other: Any) -> Any:
    y = x + 1
    first = F.linear(y, one)
    y.mul_(3)
    return first, F.linear(y, other), y


def projections(x: Any, norm: Any, q: Any, k: Any, v: Any) -> Any:
    h = rms(x, norm)
    return F.linear(h, q), F.linear(h, k), F.linear(h, v)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def layer(
    x: Any, n1: Any, wq: Any, wk: Any, wv: Any, wo: Any, n2: Any, gate: Any, up: Any, down: Any, cos: Any, sin: Any,
    keys: Any, values: Any,
) -> Any:
    """A layer of a decoder for one token, with something simple for attention."""
    h = rms(x, n1)
    q, k, v = (F.linear(h, w).view(1, 1, -1, cos.shape[-1]).transpose(1, 2) for w in (wq, wk, wv))
    place = torch.full((1,), 3, device=x.device)
    keys, values = keys.index_copy(2, place, turned(k, cos, sin)), values.index_copy(2, place, v)
    a = turned(q, cos, sin) * keys.amax((1, 2)) + values.amax((1, 2))
    return block(x + F.linear(a.transpose(1, 2).reshape(1, 1, -1), wo), n2, gate, up, down)


CASES: dict[str, Callable[[], Made]] = {
    **{
        f"linear {rows} x {inner} x {columns} {str(dtype)[6:]}": (
            lambda rows=rows, inner=inner, columns=columns, dtype=dtype: (
                F.linear, (r(rows, inner, dtype=dtype), r(columns, inner, dtype=dtype))
            )
        )
        for rows, inner, columns, dtype in (
            (1, 64, 48, BF16), (1, 257, 33, BF16), (3, 129, 65, F16), (4, 96, 40, F32), (2, 77, 19, F64),
            (1, 1030, 7, F32), (4, 64, 1, BF16), (1, 2, 64, BF16), (8, 80, 48, BF16), (16, 144, 33, F16),
            (5, 100, 20, BF16), (13, 64, 64, F32), (16, 64, 16, F64), (11, 2, 40, BF16),
        )
    },
    "bias": lambda: (F.linear, (r(2, 1, 64), r(48, 64), r(48))),
    "one vector": lambda: (F.linear, (r(64), r(48, 64), r(48))),
    "addmm": lambda: (lambda c, x, w: torch.addmm(c, x, w.t(), beta=0.5, alpha=2), (r(48), r(3, 64), r(48, 64))),
    "addmm without its first": lambda: (
        lambda c, x, w: torch.addmm(c, x, w.t(), beta=0),
        (torch.full((3, 48), torch.nan).bfloat16(), r(3, 64), r(48, 64)),
    ),
    "a matrix times a vector": lambda: (torch.mv, (r(48, 64), r(64))),
    "addmv": lambda: (torch.addmv, (r(48), r(48, 64), r(64))),
    "a matrix times few columns": lambda: (lambda a, b: a @ b.t(), (r(70, 64), r(3, 64))),
    "columns that lie apart": lambda: (torch.mm, (r(70, 64), r(64, 3))),
    "bmm": lambda: (lambda a, b: torch.bmm(a, b.mT), (r(3, 2, 64), r(3, 50, 64))),
    "baddbmm": lambda: (lambda c, a, b: torch.baddbmm(c, a, b.mT), (r(3, 1, 50), r(3, 1, 64), r(3, 50, 64))),
    "matmul of batches": lambda: (lambda a, b: a @ b.mT, (r(2, 3, 1, 64), r(2, 1, 50, 64))),
    "rows with gaps": lambda: (lambda x, w: F.linear(x[:, ::2], w[:, :64]), (r(3, 128), r(48, 80))),
    "rows that begin anywhere": lambda: (lambda x, w: F.linear(x[:, 3:67], w[5:, 1:65]), (r(3, 70), r(48, 67))),
    "activation": lambda: (lambda x, w, c: F.gelu(F.linear(x, w, c)), (r(2, 64), r(48, 64), r(48))),
    "residual": lambda: (lambda x, w, c: F.linear(x, w) + c, (r(2, 64), r(48, 64), r(2, 48))),
    "gate": lambda: (gated, (r(1, 64), r(96, 64), r(96, 64))),
    "gate of rows": lambda: (gated, (r(3, 64), r(96, 64), r(96, 64))),
    "gate of many rows": lambda: (gated, (r(16, 64), r(96, 64), r(96, 64))),
    "norm before": lambda: (lambda x, n, w: F.linear(rms(x, n), w), (r(2, 64), r(64), r(48, 64))),
    "layer norm before": lambda: (
        lambda x, n, c, w: F.linear(F.layer_norm(x, (64,), n, c), w), (r(3, 64), r(64), r(64), r(48, 64))
    ),
    "norm that is returned": lambda: (
        lambda x, n, w: (rms(x, n), F.linear(rms(x, n), w)), (r(2, 64), r(64), r(48, 64))
    ),
    "norm that is read twice": lambda: (
        lambda x, n, w: F.linear(rms(x, n), w) + rms(x, n).flip(-1), (r(2, 64), r(64), r(64, 64))
    ),
    "norm of what the product is added to": lambda: (
        lambda x, n, w: x.add_(F.linear(rms(x, n), w)) * 1, (r(2, 64), r(64), r(64, 64))
    ),
    "norm of what is written before": lambda: (
        lambda x, n, w, v: (F.linear(rms(x, n), w), x.mul_(2) * 1, F.linear(rms(x, n), v)),
        (r(2, 64), r(64), r(64, 64), r(48, 64)),
    ),
    "softmax before": lambda: (lambda x, w: F.linear(x.softmax(-1), w), (r(2, 64), r(48, 64))),
    "block": lambda: (block, (r(1, 1, 64), r(64), r(96, 64), r(96, 64), r(64, 96))),
    "block of rows": lambda: (block, (r(4, 1, 64), r(64), r(96, 64), r(96, 64), r(64, 96))),
    "two products on the way": lambda: (
        two_layers, (r(1, 1, 64), r(64, 64), r(64), r(96, 64), r(96, 64), r(64, 96))
    ),
    "decoder layer": lambda: (
        layer, (
            r(1, 1, 64), r(64), r(64, 64), r(32, 64), r(32, 64), r(64, 64), r(64), r(96, 64), r(96, 64), r(64, 96),
            r(1, 1, 1, 16), r(1, 1, 1, 16), r(1, 2, 8, 16), r(1, 2, 8, 16),
        ),
    ),
    "projections": lambda: (projections, (r(1, 1, 64), r(64), r(64, 64), r(16, 64), r(16, 64))),
    "projections of rows": lambda: (projections, (r(5, 64), r(64), r(64, 64), r(16, 64), r(80, 64))),
    "projections of other lengths": lambda: (
        lambda x, a, b, c: (F.linear(x, a), F.linear(x, b) + 1, F.linear(x[:, :32], c)),
        (r(1, 64), r(40, 64), r(17, 64), r(16, 32)),
    ),
    "one waits": lambda: (one_waits, (r(1, 64), r(40, 64), r(17, 64))),
    "written between": lambda: (written_between, (r(1, 64), r(40, 64), r(17, 64))),
    "result in another dtype": lambda: (lambda x, w: F.linear(x, w).float() * 2, (r(1, 64), r(48, 64))),
    "result stored transposed": lambda: (lambda x, w: (F.linear(x, w) * 2).t().contiguous(), (r(3, 64), r(48, 64))),
    "no rows": lambda: (F.linear, (r(0, 64), r(48, 64))),
    "no columns": lambda: (F.linear, (r(2, 64), r(0, 64))),
    "nothing to sum": lambda: (F.linear, (r(2, 0), r(48, 0))),
    "not finite": lambda: (F.linear, (torch.tensor([[1.0, torch.inf, 2.0]]).bfloat16(), r(48, 3).abs() + 1)),
}


def nth_tile(number: int) -> Callable[[Kernel], AnyTile]:
    """The tile of that number of each kernel, the last where it has fewer."""
    return lambda kernel: [*islice(candidates(kernel), number + 1)][-1]


def run(number: int, function: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(len(inputs))]
    with FakeTensorMode():
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda") for x in inputs]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    result = graph.call_function(function, tuple(nodes))
    exact, eager = (outcome(function, [copied(x, kind) for x in inputs]) for kind in (F64, None))
    results = len(exact) - len(inputs)
    parts = [graph.call_function(lambda value, at: as_tuple(value)[at], (result, at)) for at in range(results)]
    graph.output(tuple(parts))
    lowered = lower(fx.GraphModule(torch.nn.Module(), graph), fakes)
    scheduled = replace(lowered, nodes=list(schedule(lowered)))
    kernels = [node for node in scheduled.nodes if isinstance(node, Kernel)]
    left = [node.function.__name__ for node in scheduled.nodes if isinstance(node, ExternNode)]
    tiles = max((sum(1 for _ in candidates(kernel)) for kernel in kernels if not kernel.is_empty), default=1)
    far = ""
    tried = sorted({0, tiles - 1, number % tiles})
    ways = {**{f"tile {position}": nth_tile(position) for position in tried}, "many blocks": in_many_blocks}
    for name, tile in ways.items():
        mine = [x.clone() for x in inputs]
        found = [*TritonRun(scheduled, tile, lambda source: None).run(mine)[:results], *mine]
        for got, wanted, plain in zip(found, exact, eager, strict=True):
            far += difference(got, wanted, plain, name)
    return [len(kernels), left, far]


def copied(x: torch.Tensor, kind: torch.dtype | None) -> torch.Tensor:
    """A copy, of floating-point numbers in another dtype if one is given."""
    return x.to(kind or x.dtype, copy=True) if x.is_floating_point() else x.clone()


def outcome(function: Callable[..., Any], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The results of a function, and what it has left in its inputs."""
    return [*as_tuple(function(*inputs)), *inputs]


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


def difference(got: torch.Tensor, wanted: torch.Tensor, plain: torch.Tensor, name: str) -> str:
    """In words, how a result is not what it should be."""
    if (got.dtype, got.shape, got.stride()) != (plain.dtype, plain.shape, plain.stride()):
        return f"{name}: {got.dtype} {got.shape} {got.stride()} for {plain.dtype} {plain.shape} {plain.stride()}\n"
    if not got.is_floating_point():
        return "" if torch.equal(got, wanted) else f"{name}: {got} for {wanted}\n"
    finite = wanted.isfinite()
    if not torch.equal(got.double()[~finite], wanted[~finite]) and not wanted[~finite].isnan().any():
        return f"{name}: what is not finite differs\n"
    ours, theirs = ((x.double() - wanted)[finite].norm() for x in (got, plain))
    allowed = torch.maximum(theirs * 1.05, ROUNDING[got.dtype] * wanted[finite].norm())
    return "" if ours <= allowed else f"{name}: {ours:.3g} from float64, eager {theirs:.3g}\n"


def report(cases: Mapping[str, Callable[[], Made]], names: list[str]) -> None:
    """Print what became of some of the cases, or of all."""
    triton_standins.install()
    do_without_gpu()
    found: dict[str, list[Any]] = {}
    with config.patch(debug=True), torch.no_grad():
        for number, name in zip(count(), names or cases):
            torch.manual_seed(number)
            try:
                found[name] = run(number, *cases[name]())
            except Exception:
                found[name] = [0, [], traceback.format_exc()]
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    # what is quick enough is another question
    CudaTarget.multiplies, CudaTarget.norm_rows = lambda self, rows, *_: rows <= 16, 16
    report(CASES, sys.argv[1:])
