"""Reads and writes at computed places on a GPU: values are eager's, and a place that is not there is an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.graph_identity import LAUNCH_GRAPHS

pytestmark = pytest.mark.gpu

OUT_OF_RANGE = {
    "embedding": "lambda x, i: F.embedding(i, x) * 2",
    "index_select": "lambda x, i: x.index_select(0, i) + 1",
    "gather": "lambda x, i: (x + 1).gather(1, i[:, None])",
    "cross_entropy": "lambda x, i: F.cross_entropy(x, i)",
    "index_copy_": "lambda x, i: x.index_copy_(0, i, x[:4] * 2) + 1",
    "index_put_": "lambda x, i: x.index_put_((i,), x[:4] * 2) + 1",
    "a row of a softmax": "lambda x, i: torch.softmax(x[i] * 2, -1)",
}
PROGRAM = """
import torch, torch.nn.functional as F, framejit
from framejit.backends.fuse.backend import fuse_graph
f = {f}
def backend(gm, examples):
    made = fuse_graph(gm, examples)
    return getattr(made, "compiled", made)
fast = framejit.optimize(f, backend=backend, fullgraph=True)
x = torch.randn(6, 6, device="cuda")
with torch.no_grad():
    good = torch.tensor([0, 5, 1, 2], device="cuda")
    torch.testing.assert_close(fast(x[:4].clone() if "cross" in {name!r} else x.clone(), good),
                               f(x[:4].clone() if "cross" in {name!r} else x.clone(), good))
    print("good", flush=True)
    try:
        fast(x[:4].clone() if "cross" in {name!r} else x.clone(), torch.tensor([0, 6, 1, 2], device="cuda"))
        torch.cuda.synchronize()
    except RuntimeError as error:
        print(error, flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, str]]:
    """What programs print that look beyond the end of something. Each has a process of its own, which does not survive
    it."""
    running = {
        name: subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM.format(f=f, name=name)], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for name, f in OUT_OF_RANGE.items()
    }
    return {name: process.communicate(timeout=200) for name, process in running.items()}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_place_that_is_not_there_is_an_error(name: str, outcomes: dict[str, tuple[str, str]]) -> None:
    printed, errors = outcomes[name]
    assert printed.startswith("good\n") and "device-side assert" in printed, printed + errors[-2000:]
    assert "index out of bounds" in errors, errors[-2000:]


def rotated(x: torch.Tensor) -> torch.Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([-right, left], -1) * 0.5 + x


def one(keys, values, new, place):
    for cache in (keys, values):
        cache.index_copy_(2, place, rotated(new) + 1)
    scores = torch.softmax((rotated(new) * keys).sum(-1, keepdim=True), 2)
    keys[:, :, place - 1] = new * 2
    return (scores * values).sum(2), keys.sum(2)


def several(keys, values, new, place):
    keys.index_copy_(2, place, rotated(new))
    values[:, :, place - 200] = new
    return keys.amax(2), values.sum(2)


@pytest.mark.parametrize("launched", [False, True], ids=["launches", "a launch graph"])
@pytest.mark.parametrize("f, count", [(one, 1), (several, 3)])
def test_caches_are_written(f: Callable[..., Any], count: int, launched: bool) -> None:
    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        gm.meta[LAUNCH_GRAPHS] = launched
        made = fuse_graph(gm, examples)
        return getattr(made, "compiled", made)

    fast = framejit.optimize(f, backend=backend, fullgraph=True)
    mine = [torch.randn(2, 4, 200, 64, device="cuda") for _ in range(2)]
    theirs = [tensor.clone() for tensor in mine]
    with torch.no_grad():
        for position in range(1, 40):
            new = torch.randn(2, 4, count, 64, device="cuda")
            place = torch.arange(position, position + count, device="cuda")
            torch.testing.assert_close(fast(*mine, new, place), f(*theirs, new, place), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(mine, theirs)
            assert [x._version for x in mine] == [x._version for x in theirs]
    framejit.reset()
