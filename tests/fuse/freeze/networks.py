"""Networks whose weights are frozen, and what became of them."""

from __future__ import annotations

import copy

import torch
from torch import nn

import framejit
from framejit import events


def trained(module: nn.Module) -> nn.Module:
    """The module in eval mode, its batch norms with statistics that are not those of a new one."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return module.eval()


def network() -> nn.Module:
    return trained(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6)
        )
    )


def image() -> torch.Tensor:
    return torch.randn(2, 3, 12, 12)


def assert_close(module: nn.Module, result: torch.Tensor, *args: torch.Tensor) -> None:
    """That a result lies as eager's does, and as near to the exact one as a few of eager's own errors."""
    expected = module(*args)
    exact = copy.deepcopy(module).double()(*(arg.double() if arg.is_floating_point() else arg for arg in args))
    assert (result.shape, result.stride(), result.dtype) == (expected.shape, expected.stride(), expected.dtype)
    error, eagers = (float((one.double() - exact).abs().max()) for one in (result, expected))
    assert error <= 4 * eagers + 4 * torch.finfo(result.dtype).eps * float(exact.abs().max()), (error, eagers)


def graphs_of(function):
    return framejit.inspect(function).graphs


def folded_norms(function) -> list[int]:
    return [graph.folded_norms for graph in graphs_of(function)]


def recompiles() -> list[str]:
    return [failure[0] for event in events.events("recompile") for failure in event.failures]
