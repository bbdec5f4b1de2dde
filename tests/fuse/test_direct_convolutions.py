"""With frozen weights on CPUs, convolutions are kernels of ours, with what is done to their results behind them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from resource import RUSAGE_SELF, getrusage

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.products import convolution_tile

pytestmark = pytest.mark.skipif(
    not convolution_tile.channel_block(48), reason="convolutions are a library's on this processor"
)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


def kernels(fast: object) -> list[str]:
    """The names of all kernels without their numbers."""
    found = (kernel.name for graph in framejit.inspect(fast).graphs for kernel in graph.kernels)
    return [name.rpartition("_")[0] for name in found]


def convolutions(fast: object) -> list[str]:
    """What convolutions do besides."""
    return [name.removeprefix("convolution").removeprefix("_") for name in kernels(fast) if "convolution" in name]


def calls(fast: object) -> list[str]:
    return [name for graph in framejit.inspect(fast).graphs for name in graph.externs]


def assert_right(module: nn.Module, fast: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
    """That a result lies as eager's does, is as exact, and holds what is no number where eager's does."""
    with torch.no_grad():
        got, expected = fast(*(x.clone() for x in given)), module(*(x.clone() for x in given))
        exact = copy.deepcopy(module).double()(*(x.double() for x in given))
    assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert torch.equal(got.isnan(), expected.isnan()) and torch.equal(got.isinf(), expected.isinf())
    assert torch.equal(got[got.isinf()], expected[got.isinf()])
    finite = exact.isfinite() & expected.isfinite()
    error, eagers = (float((each.double() - exact)[finite].abs().mean()) for each in (got, expected))
    assert error <= 2 * eagers + 1e-7 * float(exact[finite].abs().mean()), (error, eagers)


SHAPES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "one by one": (lambda: nn.Conv2d(32, 64, 1), (2, 32, 13, 17)),
    "one by one in steps": (lambda: nn.Conv2d(32, 64, 1, 2), (2, 32, 27, 31)),
    "one by one, padded": (lambda: nn.Conv2d(32, 64, 1, padding=1), (1, 32, 19, 19)),
    "three by three": (lambda: nn.Conv2d(32, 48, 3, padding=1), (3, 32, 14, 15)),
    "in steps": (lambda: nn.Conv2d(32, 48, 3, 2, 1), (1, 32, 29, 30)),
    "uneven": (lambda: nn.Conv2d(16, 40, (3, 5), (2, 1), (3, 1), (1, 2)), (2, 16, 23, 21)),
    "dilated": (lambda: nn.Conv2d(24, 24, 3, 1, 4, 4), (1, 24, 17, 16)),
    "pictures": (lambda: nn.Conv2d(3, 64, 7, 2, 3), (1, 3, 61, 67)),
    "one channel": (lambda: nn.Conv2d(1, 32, 5, padding=2), (2, 1, 33, 32)),
    "five channels": (lambda: nn.Conv2d(5, 8, 3), (4, 5, 40, 41)),
    "seventeen channels": (lambda: nn.Conv2d(17, 16, 3, 1, 1), (1, 17, 28, 27)),
    "long sums": (lambda: nn.Conv2d(512, 64, 3, padding=1), (1, 512, 7, 7)),
    "long sums that nothing divides": (lambda: nn.Conv2d(521, 32, 1), (1, 521, 9, 9)),
    "few pixels": (lambda: nn.Conv2d(256, 256, 3, padding=1), (2, 256, 2, 2)),
    "more padding than image": (lambda: nn.Conv2d(64, 64, 3, padding=5), (1, 64, 2, 3)),
    "many rows": (lambda: nn.Conv2d(8, 8, 3, padding=1), (1, 8, 300, 3)),
    "depthwise": (lambda: nn.Conv2d(48, 48, 3, padding=1, groups=48), (2, 48, 28, 27)),
    "depthwise in steps": (lambda: nn.Conv2d(40, 40, 5, 2, 2, groups=40), (1, 40, 31, 29)),
    "depthwise, dilated": (lambda: nn.Conv2d(32, 32, 3, 1, (2, 6), (2, 3), groups=32), (1, 32, 25, 26)),
    "depthwise, seven by seven": (lambda: nn.Conv2d(96, 96, 7, padding=3, groups=96), (1, 96, 14, 14)),
    "without bias": (lambda: nn.Conv2d(32, 48, 3, bias=False), (2, 32, 14, 14)),
    "padding by name": (lambda: nn.Conv2d(32, 48, 3, padding="same"), (2, 32, 14, 14)),
}
NOT_OURS = ("one channel", "padding by name")
"""Eager's result of one channel does not lie in channels-last memory."""


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    make, sizes = SHAPES[name]
    module = make().eval()
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    for _ in range(2):
        assert_right(module, fast, torch.randn(sizes))
    if name not in NOT_OURS:
        assert convolutions(fast) == [""] and "_convolution_pointwise.default" not in calls(fast)


class Residual(nn.Module):
    def __init__(self, activation: Callable[[torch.Tensor], torch.Tensor], in_place: bool = False) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(32, 32, 3, padding=1) for _ in range(2))
        self.activation, self.in_place = activation, in_place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.activation(self.first(x))
        after = self.second(before)
        if self.in_place:
            after += before
        else:
            after = after + before
        return self.activation(after)


ACTIVATIONS = {
    "relu": F.relu, "relu_": lambda x: F.relu(x, inplace=True), "relu6": F.relu6, "hardswish": F.hardswish,
    "silu": F.silu, "leaky": F.leaky_relu, "gelu": F.gelu, "sum with itself": lambda x: x + x.tanh(),
}
VALUES = (0.0, float("nan"), float("inf"), -float("inf"), 1e38)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_done_behind_a_convolution(name, value):
    module = Residual(ACTIVATIONS[name], in_place=name.endswith("_")).eval()
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    x = torch.randn(2, 32, 15, 14)
    x.view(-1)[:: 1 + x.numel() // 3] = value
    x = x.to(memory_format=torch.channels_last)  # so that the result lies as the convolution's does
    for _ in range(2):
        assert_right(module, fast, x)
    assert len(convolutions(fast)) == 2 and all(convolutions(fast))
    assert set(kernels(fast)) <= {f"convolution_{each}" for each in convolutions(fast)}


class Both(nn.Module):
    """Two convolutions, with what `f` makes of their results."""

    def __init__(self, f: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.f = nn.Conv2d(32, 32, 3, padding=1), nn.Conv2d(32, 32, 1), f

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x, self.first(x), self.second(x))


def overwritten(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x.add_(one)
    return x.relu()


def read_before(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    top = one.amax(1, keepdim=True)
    one.mul_(2).add_(other)
    return one - top


TOGETHER: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    # what is made of an image and two convolutions of it, and how many of these do something besides
    "sum of both": (lambda x, one, other: (one + other).relu(), 1),
    "with the sum of all": (lambda x, one, other: F.relu(one).sum() + F.relu6(other), 0),
    "product of both": (lambda x, one, other: F.relu(one) * F.relu6(other), 1),
    "used twice": (lambda x, one, other: (one + 1).relu() + one.flip(3) + other.amax(), 0),
    "into the other": (lambda x, one, other: one.add_(other).relu_(), 1),
    "halves": (lambda x, one, other: one[:, :16].relu() + other[:, 16:], 0),
    "turned around": (lambda x, one, other: one.flip(2) + other.transpose(2, 3), 0),
    "joined": (lambda x, one, other: torch.cat([one.relu(), other.relu()], 1), 0),
    "of a channel": (lambda x, one, other: one * other.mean((2, 3), keepdim=True), 0),
    "the image overwritten": (overwritten, 0),
    "read before": (read_before, 0),
}


@pytest.mark.parametrize("laid_out", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", TOGETHER)
def test_which_kernels_convolutions_take_along(name, laid_out):
    f, _ = TOGETHER[name]
    module = Both(f).eval()
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    for _ in range(2):
        assert_right(module, fast, torch.randn(2, 32, 14, 14).to(memory_format=laid_out))
    if laid_out == torch.channels_last and TOGETHER[name][1]:
        assert sum(map(bool, convolutions(fast))) == TOGETHER[name][1]


def test_results_that_are_returned_too():
    class Two(Both):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.first(x)
            return y, y.relu()

    module, x = Two(F.relu).eval(), torch.randn(2, 32, 14, 14)
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    with torch.no_grad():
        for got, expected in zip(fast(x), module(x), strict=True):
            torch.testing.assert_close(got, expected)


def test_images_that_are_views():
    module = nn.Conv2d(32, 48, 3).eval()
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    x = torch.randn(2, 64, 30, 31).to(memory_format=torch.channels_last)
    for view in (x[:, 32:], x[:, ::2], x[:, :32, 1:20, 3:], x[1:, :32], x[:, :32].transpose(2, 3)):
        assert_right(module, fast, view)


def test_threads_give_the_same():
    module, x = Residual(F.relu).eval(), torch.randn(1, 32, 56, 56)
    before = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            with torch.no_grad():
                results.append(framejit.optimize(module, fullgraph=True, freeze=True)(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_plans_from_the_disk_have_the_weights_at_hand():
    x = torch.randn(2, 32, 14, 14).to(memory_format=torch.channels_last)
    for _ in range(2):
        module = Residual(F.relu6).eval()
        fast = framejit.optimize(module, fullgraph=True, freeze=True)
        assert_right(module, fast, x)
        with torch.no_grad():
            module.first.weight.mul_(-3)
        assert_right(module, fast, x)


@pytest.mark.parametrize("host", [(64, True), (32, False)])
@pytest.mark.parametrize("name", ["three by three", "uneven", "depthwise", "one by one", "few pixels"])
def test_vectors_of_other_processors(monkeypatch, name, host):
    """The compiler makes of wide vectors what this processor has."""
    width, is_avx512 = host
    monkeypatch.setattr(
        convolution_tile, "machine", lambda: replace(machine(), vector_bytes=width, is_avx512=is_avx512)
    )
    make, sizes = SHAPES[name]
    module = make().eval()
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    assert_right(module, fast, torch.randn(sizes))
    assert convolutions(fast) == [""]


def test_pages_stay():
    """What a plan takes for its values is not given back to the system after each call."""
    layers = [nn.Conv2d(3, 64, 3, padding=1), *(nn.Conv2d(64, 64, 1) for _ in range(3))]
    module, x = nn.Sequential(*layers).eval(), torch.randn(1, 3, 160, 160)
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    faults = []
    with torch.no_grad():
        for _ in range(8):
            before = getrusage(RUSAGE_SELF).ru_minflt
            fast(x)
            faults.append(getrusage(RUSAGE_SELF).ru_minflt - before)
    assert min(faults[3:]) < 200, faults  # one value has 1600 pages
