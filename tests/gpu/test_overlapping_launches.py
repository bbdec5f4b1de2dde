"""Kernels that begin before those launched before them have ended, on a GPU: none reads what is not written yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.graph_identity import LAUNCH_GRAPHS

pytestmark = pytest.mark.gpu

LAYERS, SIZE, CALLS = 24, 1024, 200


@pytest.fixture(autouse=True)
def forget():
    if not target_of(torch.device("cuda", 0)).overlaps_launches:
        pytest.skip("kernels of this GPU can't wait for others")
    yield
    framejit.reset()


@pytest.fixture(params=[False, True], ids=["launches", "a launch graph"])
def compiled(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What optimises a function, which is never eager instead because that measured quicker."""

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        gm.meta[LAUNCH_GRAPHS] = request.param
        made = fuse_graph(gm, examples)
        return getattr(made, "compiled", made)

    return lambda f: framejit.optimize(f, backend=backend)


def layers(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    for w in weights:
        x = torch.tanh(F.linear(x, w)) + x
        x = x / x.abs().max()
    return x


def weights_of(dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) / 30 for _ in range(LAYERS)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_weights_that_the_program_writes_between_calls(compiled, dtype):
    weights = weights_of(dtype)
    x = torch.randn(1, SIZE, device="cuda", dtype=dtype)
    fast = compiled(layers)
    with torch.no_grad():
        for _ in range(6):  # a launch graph is captured meanwhile
            plain = fast(x, weights)
        for w in weights:
            w.neg_()
        negated = fast(x, weights)
        torch.cuda.synchronize()
        torch.testing.assert_close(negated, layers(x, weights), atol=0.02, rtol=0.02)
        assert (negated - plain).abs().max() > 0.2
        results = []
        for _ in range(CALLS):
            for w in weights:
                w.neg_()
            results.append(fast(x, weights))
    for number, result in enumerate(results):
        assert torch.equal(result, negated if number % 2 else plain), number


def test_what_a_plan_writes_itself(compiled):
    def f(x, cache, weights):
        for number, w in enumerate(weights):
            x = torch.tanh(F.linear(x, w))
            cache[number].copy_(x[0])  # a kernel of ours writes what the next one reads
            x = x + cache.sum(0)
            x = x / x.abs().max()
        return x

    weights = weights_of(torch.float32)
    fast, results = compiled(f), []
    mine, theirs = (torch.zeros(LAYERS, SIZE, device="cuda") for _ in range(2))
    with torch.no_grad():
        for seed in range(40):
            x = torch.randn(1, SIZE, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            results.append((fast(x, mine, weights), f(x, theirs, weights)))
    for got, expected in results:
        torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)


def test_an_input_whose_memory_another_one_writes(compiled):
    def f(x, w, part):
        for _ in range(6):
            x = torch.tanh(F.linear(x, w))
            part.mul_(0.5).add_(x)
        return x, F.linear(x, w)

    def inputs():
        torch.manual_seed(0)
        memory = torch.randn(SIZE, SIZE, device="cuda") / 30
        return torch.randn(1, SIZE, device="cuda"), memory, memory[3:5]

    fast, mine, theirs = compiled(f), inputs(), inputs()
    with torch.no_grad():
        for _ in range(20):
            torch.testing.assert_close(fast(*mine), f(*theirs), atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-4)
