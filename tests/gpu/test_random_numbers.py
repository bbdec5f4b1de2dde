"""Random numbers that kernels make, on a GPU: bits, seeds, states of generators, memory, launch graphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from framejit.backends.fuse.random_numbers.drawn_again import DrawnAgain
from framejit.backends.fuse.random_numbers.operations import BERNOULLI, NORMAL, UNIFORM, draw_key

pytestmark = pytest.mark.gpu

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
CALLS = 12
"""More than it takes to capture a launch graph."""


@pytest.fixture(autouse=True)
def by_kernels() -> Iterator[None]:
    with framejit.config.patch(same_random_numbers=False):
        yield
    framejit.reset()


def optimized(fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    return framejit.optimize(fn, backend="fuse", **options)


def on_gpu(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*size, device="cuda").to(dtype)


def seeded(number: int, fn: Callable[..., Any], *args: Any) -> Any:
    torch.manual_seed(number)
    return fn(*args)


def as_kernels(number: int, fn: Callable[..., Any], *args: Any) -> Any:
    """What eager gives with the numbers that kernels make after a seed."""
    torch.manual_seed(number)
    with DrawnAgain() as again:
        result = fn(*args)
    assert again.draws
    return result


def key() -> torch.Tensor:
    return draw_key(torch.device("cuda", torch.cuda.current_device()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(1,), (7, 13), (64, 1024), (3, 5, 1001)])
def test_kernels_give_the_bits_that_the_operations_give(dtype: torch.dtype, size: tuple[int, ...]) -> None:
    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.dropout(x, 0.3), torch.rand_like(x), torch.randn_like(x), torch.bernoulli(x, 0.25)

    x = on_gpu(*size, dtype=dtype)
    compiled = optimized(f)
    with torch.no_grad():
        for _ in range(3):
            left, uniform, normal, ones = seeded(5, compiled, x)
    torch.manual_seed(5)
    drawn, stride = key(), x.stride()
    mask = BERNOULLI(drawn, 0, size, stride, 0.7)
    assert torch.equal(left != 0, mask & (x != 0))
    assert torch.equal(uniform, UNIFORM(drawn, 1, size, stride, 0.0, 1.0, dtype=dtype))
    close = {"rtol": 1e-6, "atol": 1e-6} if dtype.itemsize > 2 else {"rtol": torch.finfo(dtype).eps, "atol": 1e-6}
    torch.testing.assert_close(normal, NORMAL(drawn, 2, size, stride, 0.0, 1.0, dtype=dtype), **close)
    assert torch.equal(ones, BERNOULLI(drawn, 3, size, stride, 0.25).to(dtype))
    report = framejit.inspect(compiled).graphs[0]
    assert not report.reason and len(report.externs) == 1, report


@pytest.mark.parametrize("dtype", DTYPES)
def test_distributions(dtype: torch.dtype) -> None:
    n = 1 << 22
    with torch.no_grad():
        made = optimized(lambda x: (torch.rand_like(x), torch.randn_like(x)))
        uniform, normal = made(torch.empty(n, device="cuda", dtype=dtype))
    assert 0 <= uniform.min() and uniform.max() < 1 and normal.isfinite().all()
    assert abs(float(uniform.double().mean()) - 0.5) < 4 / math.sqrt(12 * n)
    assert abs(float(normal.double().mean())) < 4 / math.sqrt(n)
    assert abs(float(normal.double().var()) - 1) < 5 * math.sqrt(2 / n)
    if dtype.itemsize > 2:
        for sample, of in ((uniform, lambda x: x), (normal, torch.special.ndtr)):
            values = sample.double().sort().values
            ranks = torch.arange(1, n + 1, device="cuda", dtype=torch.float64) / n
            # Kolmogorov and Smirnov: less than 2.2 with a probability of 0.9999
            assert float((ranks - of(values)).abs().max()) * math.sqrt(n) < 2.2


def test_dropout_scales_and_rounds_as_in_eager() -> None:
    for dtype in DTYPES:
        x = on_gpu(1000, dtype=dtype)
        with torch.no_grad():
            got, expected = optimized(lambda x: F.dropout(x, 0.3))(x), F.dropout(x, 0.3)
        both = (got != 0) & (expected != 0)
        assert both.sum() > 300 and torch.equal(got[both], expected[both])


def network(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    h = F.dropout(torch.tanh(x @ w), 0.3)
    return (F.dropout(h * h, 0.5) + torch.rand_like(h) * h + torch.randn_like(h) * x).sum()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_forward_and_backward_are_those_of_the_same_numbers(mode: str) -> None:
    x, w = (on_gpu(96, 96).requires_grad_() for _ in range(2))
    compiled = optimized(network, mode=mode)
    for number in [*range(CALLS), 0, 0]:
        got = seeded(number, compiled, x, w)
        gradients = torch.autograd.grad(got, (x, w))
        expected = as_kernels(number, network, x, w)
        torch.testing.assert_close(
            [got, *gradients], [expected, *torch.autograd.grad(expected, (x, w))], rtol=1e-3, atol=1e-3
        )
    launched = framejit.status().launched
    assert mode == "default" or [each.state for each in launched] == ["captured"] * 2, launched


def test_nothing_is_kept_but_a_key() -> None:
    x = on_gpu(1024, 1024).requires_grad_()

    def kept(**options: Any) -> int:
        compiled = optimized(lambda x: F.dropout(x, 0.4).sum(), **options)
        for _ in range(3):
            out = compiled(x)
        return sum(t.untyped_storage().nbytes() for t in out.grad_fn.saved_tensors if t.data_ptr() != x.data_ptr())

    assert kept() == 8
    assert kept(options={"same_random_numbers": True}) >= x.numel()


def test_the_gradient_is_zero_exactly_where_the_result_is() -> None:
    x = (torch.rand(999, 77, device="cuda") + 1).requires_grad_()
    compiled = optimized(lambda x: F.dropout(x, 0.4))
    for number in range(4):
        out = seeded(number, compiled, x)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        assert torch.equal(gradient == 0, out == 0)


def test_seeds_and_states() -> None:
    x = torch.empty(1000, device="cuda")
    compiled = optimized(torch.rand_like)
    first, second = seeded(1, compiled, x), compiled(x)
    assert not torch.equal(first, second)
    for _ in range(CALLS):
        assert torch.equal(seeded(1, compiled, x), first) and torch.equal(compiled(x), second)
    state = torch.cuda.get_rng_state()
    third = compiled(x)
    torch.cuda.set_rng_state(state)
    assert torch.equal(compiled(x), third)
    torch.cuda.set_rng_state(state)
    with torch.random.fork_rng():
        compiled(x), torch.rand(3, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), state) and torch.equal(compiled(x), third)


def test_each_call_moves_the_generator_on() -> None:
    generator = torch.cuda.default_generators[torch.cuda.current_device()]
    compiled = optimized(lambda x: F.dropout(x, 0.5) + torch.randn_like(x))
    with torch.no_grad():
        compiled(on_gpu(10))
        torch.manual_seed(0)
        offsets = []
        for size in (1000, 1000, 100_000):
            before = generator.get_offset()
            compiled(torch.ones(size, device="cuda"))
            offsets.append(generator.get_offset() - before)
    assert offsets[0] == offsets[1] > 0 and offsets[0] % 4 == 0 and offsets[2] == offsets[0]


def test_launch_graphs_draw_as_plans_do() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x * 2, 0.5) + torch.rand_like(x)

    plan, fast = optimized(f), optimized(f, mode="reduce-overhead")
    with torch.no_grad():
        for number in range(CALLS):
            x = on_gpu(1000)
            assert torch.equal(seeded(number, plan, x), seeded(number, fast, x))
            assert not torch.equal(fast(x), fast(x))
    assert [each.state for each in framejit.status().launched] == ["captured"]


def test_a_graph_that_the_program_captures() -> None:
    """Torch's own mechanism gives each replay other numbers."""
    compiled = optimized(lambda x: F.dropout(x, 0.5))
    x = torch.ones(1000, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            compiled(x)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = compiled(x)
        found = []
        for _ in range(3):
            graph.replay()
            found.append(out.clone())
        torch.manual_seed(3)
        graph.replay()
        again = out.clone()
        torch.manual_seed(3)
        graph.replay()
    assert not torch.equal(found[0], found[1]) and not torch.equal(found[1], found[2])
    assert torch.equal(again, out)
    assert all(0.4 < float((each == 0).double().mean()) < 0.6 for each in found)


class Block(nn.Module):
    """A part that is checkpointed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 256), nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + F.dropout(self.outer(F.dropout(torch.relu(self.inner(x)), 0.3)), 0.1)


def test_a_checkpoint_computes_its_masks_again() -> None:
    blocks = nn.ModuleList([Block() for _ in range(3)]).cuda()
    x = on_gpu(32, 64).requires_grad_()

    def run(x: torch.Tensor, again: bool) -> torch.Tensor:
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return x.square().sum()

    compiled = optimized(run)
    for number in (0, 0, 1):
        out = seeded(number, compiled, x, True)
        got = [out, *torch.autograd.grad(out, [x, *blocks.parameters()])]
        expected = as_kernels(number, run, x, False)
        torch.testing.assert_close(
            got, [expected, *torch.autograd.grad(expected, [x, *blocks.parameters()])], rtol=1e-3, atol=1e-3
        )
    out = compiled(x, True)  # whose node keeps nothing any more when it is gone
    assert torch.bool not in {tensor.dtype for tensor in out.grad_fn.saved_tensors}


def test_gradients_of_gradients() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (F.dropout(x, 0.4) ** 3 * torch.rand_like(x)).sum()

    def both(fn: Callable[..., Any], x: torch.Tensor) -> list[torch.Tensor]:
        out = fn(x)
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        return [out, first, *torch.autograd.grad(first.sum(), x)]

    x = on_gpu(500).double().requires_grad_()
    compiled = optimized(f)
    for number in (0, 1):
        torch.testing.assert_close(seeded(number, both, compiled, x), as_kernels(number, both, f, x))


def test_same_random_numbers_are_eagers() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.4) + torch.rand_like(x) * torch.randn_like(x)

    x = on_gpu(3000)
    compiled = optimized(f, options={"same_random_numbers": True})
    with torch.no_grad():
        for number in (0, 1, 1):
            torch.testing.assert_close(seeded(number, compiled, x), seeded(number, f, x))


def test_equal_seeds_give_equal_bits_in_deterministic_mode() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (F.dropout(x.sin(), 0.3) * torch.rand_like(x) + torch.randn_like(x) * x).square().sum()

    x = on_gpu(300, 70).requires_grad_()
    compiled = optimized(f)
    torch.use_deterministic_algorithms(True)
    try:
        found = []
        for _ in range(4):
            out = seeded(4, compiled, x)
            found.append([out.detach(), *torch.autograd.grad(out, x)])
    finally:
        torch.use_deterministic_algorithms(False)
    for again in found[2:]:  # the first run is ATen's, operation by operation
        assert all(map(torch.equal, found[1], again))
