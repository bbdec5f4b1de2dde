"""Random numbers that kernels make, by Triton's interpreter: to the last bit those of the operations that graphs have
for them, in tiles in which four neighbours share what Philox gives and in others. Print what fails, and how kernels
work the words out, as JSON.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel
from framejit.backends.fuse.random_numbers.drawings import scale_of_dropout
from framejit.backends.fuse.random_numbers.operations import BERNOULLI, NORMAL, UNIFORM, draw_key
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.config import config
from tests.fuse.lowering.cuda_graphs import lowered_for_cuda
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile, in_many_blocks

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
CPU: Final = torch.device("cpu")

Function = Callable[..., torch.Tensor]
Drawn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""What is expected, given the key and the argument."""


def like(x: torch.Tensor) -> tuple[list[int], list[int]]:
    return [*x.shape], [*torch.empty_like(x).stride()]


def mask(key: torch.Tensor, draw: int, x: torch.Tensor, p: float) -> torch.Tensor:
    return BERNOULLI(key, draw, *like(x), 1 - p)


def dropped(key: torch.Tensor, draw: int, x: torch.Tensor, p: float) -> torch.Tensor:
    wide = x if x.dtype == F64 else x.float()
    return (wide * mask(key, draw, x, p) * scale_of_dropout(p, x.dtype)).to(x.dtype)


def uniform(key: torch.Tensor, draw: int, x: torch.Tensor, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    return UNIFORM(key, draw, *like(x), low, high, dtype=x.dtype)


def normal(key: torch.Tensor, draw: int, x: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    return NORMAL(key, draw, *like(x), mean, std, dtype=x.dtype)


def r(*sizes: int, dtype: torch.dtype = F32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def image() -> torch.Tensor:
    return r(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)


def half(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x, 0.5)


def halved(key: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return dropped(key, 0, x, 0.5)


def two_dropouts(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(F.dropout(x, 0.5), 0.25)


def of_softmax(x: torch.Tensor) -> torch.Tensor:
    return F.dropout(x.softmax(-1), 0.25)


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(half(x), (1, 2))


CASES: dict[str, tuple[Function, Callable[[], torch.Tensor], Drawn]] = {
    "dropout": (lambda x: F.dropout(x, 0.3), lambda: r(16, 64), lambda k, x: dropped(k, 0, x, 0.3)),
    "dropout, float16": (lambda x: F.dropout(x, 0.3), lambda: r(8, 32, dtype=F16), lambda k, x: dropped(k, 0, x, 0.3)),
    "dropout, bfloat16": (lambda x: F.dropout(x, 0.1), lambda: r(99, dtype=BF16), lambda k, x: dropped(k, 0, x, 0.1)),
    "dropout, float64": (lambda x: F.dropout(x, 0.1), lambda: r(7, 9, dtype=F64), lambda k, x: dropped(k, 0, x, 0.1)),
    "dropout of odd rows": (lambda x: F.dropout(x, 0.3), lambda: r(5, 7, 3), lambda k, x: dropped(k, 0, x, 0.3)),
    "dropout of columns": (lambda x: F.dropout(x, 0.3), lambda: r(8, 12).t(), lambda k, x: dropped(k, 0, x, 0.3)),
    "dropout of images": (lambda x: F.dropout(x, 0.3), image, lambda k, x: dropped(k, 0, x, 0.3)),
    "two dropouts": (two_dropouts, lambda: r(8, 16), lambda k, x: dropped(k, 1, dropped(k, 0, x, 0.5), 0.25)),
    "dropout of nan and inf": (half, lambda: torch.tensor([math.inf, math.nan, -math.inf, 1.0] * 8), halved),
    "dropout of a softmax": (of_softmax, lambda: r(6, 40), lambda k, x: dropped(k, 0, x.softmax(-1), 0.25)),
    "sum of a dropout": (lambda x: half(x).sum(-1), lambda: r(6, 40), lambda k, x: halved(k, x).sum(-1)),
    "sum of odd rows": (lambda x: half(x).sum(-1), lambda: r(5, 13), lambda k, x: halved(k, x).sum(-1)),
    "sum over rows": (lambda x: half(x).sum(0), lambda: r(24, 12), lambda k, x: halved(k, x).sum(0)),
    "dropout in a frame": (padded, lambda: r(5, 8), lambda k, x: F.pad(halved(k, x), (1, 2))),
    "a part of a dropout": (lambda x: half(x).narrow(1, 3, 9), lambda: r(6, 16), lambda k, x: halved(k, x)[:, 3:12]),
    "bernoulli": (lambda x: torch.bernoulli(x, 0.7), lambda: r(3, 20), lambda k, x: mask(k, 0, x, 0.3).to(F32)),
    "rand": (torch.rand_like, lambda: r(4, 32), lambda k, x: uniform(k, 0, x)),
    "rand of an odd size": (torch.rand_like, lambda: r(37), lambda k, x: uniform(k, 0, x)),
    "rand of one": (torch.rand_like, lambda: r(), lambda k, x: uniform(k, 0, x)),
    "rand, float16": (torch.rand_like, lambda: r(2000, dtype=F16), lambda k, x: uniform(k, 0, x)),
    "rand, bfloat16": (torch.rand_like, lambda: r(2000, dtype=BF16), lambda k, x: uniform(k, 0, x)),
    "rand, float64": (torch.rand_like, lambda: r(4, 33, dtype=F64), lambda k, x: uniform(k, 0, x)),
    "rand of a size": (
        lambda x: torch.rand(4, 12, device=x.device) + x, lambda: r(4, 12), lambda k, x: uniform(k, 0, x) + x
    ),
    "randn": (torch.randn_like, lambda: r(4, 32), lambda k, x: normal(k, 0, x)),
    "randn of an odd size": (torch.randn_like, lambda: r(5, 7), lambda k, x: normal(k, 0, x)),
    "randn, float16": (torch.randn_like, lambda: r(300, dtype=F16), lambda k, x: normal(k, 0, x)),
    "randn, bfloat16": (torch.randn_like, lambda: r(300, dtype=BF16), lambda k, x: normal(k, 0, x)),
    "randn, float64": (torch.randn_like, lambda: r(4, 33, dtype=F64), lambda k, x: normal(k, 0, x)),
    "randn of a size": (
        lambda x: torch.randn(4, 12, device=x.device) * x, lambda: r(4, 12), lambda k, x: normal(k, 0, x) * x
    ),
}
INEXACT: Final = ("sum", "softmax", "randn")
"""What is in the names of cases whose results may differ in the last bit: libraries have functions of their own, sums
another order, or a product and a sum are one operation. Which numbers are drawn would show nevertheless."""


def run(number: int, function: Function, make: Callable[[], torch.Tensor], expected: Drawn, exact: bool) -> list[str]:
    """The sources of the case's kernels. Raises AssertionError where something differs, or ATen does what it must
    not."""
    x = make()
    lowered = lowered_for_cuda(function, x)
    steps = schedule(lowered)
    called = [step for step in steps if isinstance(step, ExternNode)]
    assert [str(step.function) for step in called] == ["aten.randint.low"], called
    assert called[0].ordered
    sources: list[str] = []

    def launched(source: TritonSource) -> None:
        sources.append(source.code)

    lowered.nodes = steps  # type: ignore[assignment]
    for tile in (first_tile, in_many_blocks):
        torch.manual_seed(number)
        (result,) = TritonRun(lowered, tile, launched).run((x.clone(),))
        torch.manual_seed(number)
        wanted = expected(draw_key(CPU), x)
        assert result.dtype == wanted.dtype and result.stride() == function(x).stride(), (result.stride(), result.dtype)
        close: dict[str, Any] = {"rtol": 0, "atol": 0} if exact else {}
        torch.testing.assert_close(result, wanted, equal_nan=True, **close)
        assert len(steps) == sum(isinstance(step, Kernel) for step in steps) + 1
    return sources


def main(names: Sequence[str]) -> None:
    """Print what became of some of the cases, or of all: an error's text, or the sources."""
    triton_standins.install()
    found: dict[str, Any] = {}
    with config.patch(debug=True), torch.no_grad():
        for number, name in enumerate(names or CASES):
            torch.manual_seed(number)
            try:
                found[name] = run(number, *CASES[name], not any(word in name for word in INEXACT))
            except Exception:
                found[name] = traceback.format_exc()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
