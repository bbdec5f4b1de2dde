"""Operations that gradient formulas call are recorded as arithmetic: values are as near to exact ones as eager's, in
the same memory order, and no operation of ATen's is left that goes over memory by itself."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

CASES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "glu": (lambda x: F.glu(x, 1), (3, 8, 5)),
    "glu of the last dimension": (lambda x: F.glu(x.sin()) * 2, (4, 6)),
    "prelu": (lambda x: F.prelu(x, torch.tensor([0.3], dtype=x.dtype)), (4, 3, 5)),
    "huber_loss": (lambda x: F.huber_loss(x * 2, x.detach().cos(), delta=0.7), (4, 5)),
    "huber_loss, each": (lambda x: F.huber_loss(x * 2, x.detach().cos(), reduction="none"), (4, 5)),
    "huber_loss, sum": (lambda x: F.huber_loss(x * 2, x.detach().cos(), reduction="sum", delta=0.2), (4, 5)),
    "binary_cross_entropy": (lambda x: F.binary_cross_entropy(x.sigmoid(), x.detach().abs().clamp(max=1)), (4, 5)),
    "binary_cross_entropy, each": (
        lambda x: F.binary_cross_entropy(x.clamp(0, 1), x.detach().abs().clamp(max=1), reduction="none"), (4, 5)
    ),
    "nearest, lines": (lambda x: F.interpolate(x.sin(), scale_factor=3) * 2, (2, 3, 4)),
    "nearest, images": (lambda x: F.interpolate(x.sin(), scale_factor=2), (2, 3, 4, 5)),
    "nearest, by size": (lambda x: F.interpolate(x, size=(8, 15)).cos(), (2, 3, 4, 5)),
    "nearest, volumes": (lambda x: F.interpolate(x, scale_factor=(1, 2, 3)).cos(), (2, 3, 2, 3, 2)),
    "nearest-exact": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact").cos(), (2, 3, 4, 5)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x.sin(), 2), (2, 3, 4, 6)),
    "avg_pool2d, strips": (lambda x: F.avg_pool2d(x.sin(), (2, 1), (2, 1)), (2, 3, 4, 5)),
    "avg_pool2d with a divisor": (lambda x: F.avg_pool2d(x.sin(), 2, divisor_override=3), (2, 3, 4, 6)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x.sin(), 2), (2, 3, 4, 2, 6)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x.sin(), (2, 3)), (2, 3, 4, 6)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x.sin(), (2, 3, 1)), (2, 3, 4, 6, 2)),
    "diagonal": (lambda x: x.diagonal(dim1=1, dim2=2).log1p(), (3, 4, 4)),
    "trace": (lambda x: x.diag().sin() + x.cos().sum(0), (4, 4)),
    "cross_entropy of images": (
        lambda x: F.cross_entropy(x * 2, torch.arange(x.shape[0] * 20).view(-1, 4, 5) % 3, reduction="none"),
        (2, 3, 4, 5),
    ),
    "cross_entropy of images, some ignored": (
        lambda x: F.cross_entropy(x * 2, torch.arange(x.shape[0] * 20).view(-1, 4, 5) % 3, ignore_index=1),
        (2, 3, 4, 5),
    ),
    "weight_norm": (lambda x: torch._weight_norm(x.sin(), x.detach()[:, :1, :1].cos() + 2, 0), (4, 3, 2)),
    "weight_norm of the last": (lambda x: torch._weight_norm(x, x.sum((0, 1), keepdim=True), -1) * 2, (4, 3, 2)),
}
OTHERWISE: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "nearest, not a whole factor": (lambda x: F.interpolate(x, size=(7, 9)).cos(), (2, 3, 4, 5)),
    "nearest, another scale": (
        lambda x: F.interpolate(x, scale_factor=2.1, recompute_scale_factor=False).cos(), (2, 3, 4, 5)
    ),
    "avg_pool2d, overlapping": (lambda x: F.avg_pool2d(x.sin(), 3, 2), (2, 3, 7, 7)),
    "avg_pool2d, with padding": (lambda x: F.avg_pool2d(x.sin(), 2, padding=1), (2, 3, 6, 6)),
    "avg_pool2d, a rest": (lambda x: F.avg_pool2d(x.sin(), 2), (2, 3, 5, 6)),
    "avg_pool2d, a rest taken in": (lambda x: F.avg_pool2d(x.sin(), 2, ceil_mode=True), (2, 3, 5, 6)),
    "avg_pool2d, one image": (lambda x: F.avg_pool2d(x.sin(), 2), (3, 4, 6)),
    "avg_pool3d, one volume": (lambda x: F.avg_pool3d(x.sin(), 2), (3, 4, 2, 6)),
    "adaptive_avg_pool2d, odd": (lambda x: F.adaptive_avg_pool2d(x.sin(), (3, 4)), (2, 3, 4, 6)),
    "adaptive_avg_pool3d, one volume": (lambda x: F.adaptive_avg_pool3d(x.sin(), (2, 3, 1)), (3, 4, 6, 2)),
    "diagonal above": (lambda x: x.diagonal(1, 1, 2).log1p(), (3, 4, 4)),
    "diagonal of other dimensions": (lambda x: x.diagonal(0, 0, 2).log1p(), (4, 3, 4)),
    "diagonal, not square": (lambda x: x.diagonal(dim1=1, dim2=2).log1p(), (3, 4, 6)),
    "glu, turned": (lambda x: F.glu(x.sin(), 1).transpose(1, 2).cumsum(1), (3, 8, 5)),
    "glu of nothing": (lambda x: F.glu(x, 1), (0, 4)),
}
NOT_OF_ATEN = {
    (name, dtype) for name in ("avg_pool3d", "avg_pool3d, one volume") for dtype in (torch.bfloat16, torch.float16)
}


def gradients(fn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    result = fn(x)
    factors = torch.linspace(-1, 1, max(result.numel(), 1), dtype=torch.float64)[: result.numel()].view(result.shape)
    return [result.detach(), *torch.autograd.grad((result * factors.to(result.dtype)).sum(), x)]


def exact_and_found(fn: Any, compiled: Any, x: torch.Tensor) -> None:
    exact = gradients(fn, x.detach().double().requires_grad_())
    theirs, mine = gradients(fn, x), gradients(compiled, x)
    for best, their, my in zip(exact, theirs, mine):
        assert (my.dtype, my.shape, my.stride()) == (their.dtype, their.shape, their.stride())
        scale = best.norm() + 1e-9
        error, allowed = (best - my).norm() / scale, (best - their).norm() / scale
        assert error <= 2 * allowed + 4 * torch.finfo(my.dtype).eps, (error, allowed)


def data(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.abs().to(dtype) if seed % 2 else x.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [*CASES, *OTHERWISE])
def test_gradients_are_as_exact_as_eager_s(name: str, dtype: torch.dtype) -> None:
    fn, shape = (CASES | OTHERWISE)[name]
    if (name, dtype) in NOT_OF_ATEN:
        pytest.skip("ATen has no such operation for half precision")
    compiled = framejit.optimize(fn, backend="fuse", fullgraph=True)
    for seed in (1, 3):
        exact_and_found(fn, compiled, data(shape, dtype, seed).requires_grad_())
    graphs = framejit.inspect(compiled).graphs
    assert not [graph.reason for graph in graphs if graph.reason] or 0 in shape
    if name in CASES and dtype in (torch.float32, torch.float64):
        externs = {extern for graph in graphs for extern in graph.externs}
        assert not {extern for extern in externs if "backward" in extern}, externs


@pytest.mark.parametrize("name", [name for name, (_, shape) in (CASES | OTHERWISE).items() if len(shape) == 4])
def test_images_with_channels_last(name: str) -> None:
    fn, shape = (CASES | OTHERWISE)[name]
    compiled = framejit.optimize(fn, backend="fuse", fullgraph=True)
    for seed in (1, 3):
        x = data(shape, torch.float32, seed).contiguous(memory_format=torch.channels_last).requires_grad_()
        exact_and_found(fn, compiled, x)


@pytest.mark.parametrize("name", [*CASES, *OTHERWISE])
def test_sizes_that_are_left_open(name: str) -> None:
    fn, (_, *rest) = (CASES | OTHERWISE)[name]
    compiled = framejit.optimize(fn, backend="fuse", fullgraph=True, dynamic=True)
    square = name in ("trace", "diagonal of other dimensions")
    for first in (4,) if square else (2, 5, 3):
        x = data((first, *rest), torch.float64, 1).requires_grad_()
        exact_and_found(fn, compiled, x)


def test_a_second_gradient() -> None:
    module = nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.PReLU(), nn.Linear(4, 4)).double()
    other = copy.deepcopy(module)
    compiled = framejit.optimize(other, backend="fuse")
    for _ in range(2):
        x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)
        seconds = []
        for fn, net in ((compiled, other), (module, module)):
            [first] = torch.autograd.grad(F.huber_loss(fn(x), x[:, :4].detach()), x, create_graph=True)
            seconds.append(torch.autograd.grad(first.square().sum(), [x, *net.parameters()], allow_unused=True))
        for mine, theirs in zip(*seconds):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                torch.testing.assert_close(mine, theirs)
