"""Group norms are statistics and arithmetic on them, of which little is kept for the backward; so are other norms, with
weights in the dtype that is computed in."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import of_kind, recorded

SHAPES = [((4, 8, 6, 6), 4), ((2, 6, 5), 3), ((3, 8), 4), ((2, 12, 3, 4, 5), 1), ((2, 8, 7, 7), 8), ((1, 4, 3, 3), 2)]


def errors(norm, x, dtype, is_mixed, compiled):
    """How far results and gradients are from those in float64."""
    outcomes = []
    for kind in (torch.float64, dtype):
        module = copy.deepcopy(norm)
        if kind is torch.float64 or not is_mixed:
            module = module.to(kind)
        given = x.to(dtype).to(kind).detach().requires_grad_()

        def fn(t, module=module):
            return F.silu(module(t))

        called = compiled(fn) if kind is dtype else fn
        for _ in range(2):
            module.zero_grad()
            given.grad = None
            result = called(given)
            factors = torch.linspace(-1, 1, result.numel()).view_as(result)
            (result * factors.to(kind)).sum().backward()
        outcomes.append([result.detach(), given.grad, *(p.grad for p in module.parameters())])
    exact, found = outcomes
    return [((a.double() - b).norm() / (b.norm() + 1e-9)).item() for a, b in zip(found, exact)]


@pytest.mark.parametrize("dtype,is_mixed", [
    (torch.float32, False), (torch.float64, False), (torch.bfloat16, False), (torch.bfloat16, True),
    (torch.float16, True),
])
@pytest.mark.parametrize("shape,groups", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_group_norms_are_as_exact_as_eager_s(shape, groups, dtype, is_mixed, affine):
    torch.manual_seed(0)
    norm = nn.GroupNorm(groups, shape[1], affine=affine)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(shape) * 2 + 1
    theirs = errors(norm, x, dtype, is_mixed, lambda fn: fn)
    mine = errors(norm, x, dtype, is_mixed, lambda fn: framejit.optimize(fn, backend="fuse"))
    for one, other in zip(theirs, mine):
        assert other <= 2 * one + 4 * torch.finfo(dtype).eps


def test_images_with_channels_last():
    torch.manual_seed(0)
    norm = nn.GroupNorm(2, 8).double()
    compiled = framejit.optimize(norm, backend="fuse")
    for _ in range(3):
        x = torch.randn(2, 8, 5, 5, dtype=torch.float64).to(memory_format=torch.channels_last)
        found = []
        for module in (norm, compiled):
            given = x.detach().requires_grad_()
            result = module(given)
            gradients = torch.autograd.grad(result.sin().sum(), [given, *norm.parameters()])
            found.append((result, result.stride(), gradients))
        torch.testing.assert_close(*found)


class Block(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), norm, nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1))

    def forward(self, x):
        return x + self.body(x)


@pytest.mark.parametrize("norm", [lambda: nn.GroupNorm(2, 8), lambda: nn.BatchNorm2d(8)])
def test_nothing_of_the_size_of_an_image_is_kept_of_a_norm(norm):
    torch.manual_seed(0)
    net = nn.Sequential(*(Block(norm()) for _ in range(3)))
    plain = copy.deepcopy(net)
    with recorded() as log:
        compiled = framejit.optimize(net, backend="fuse")
        for _ in range(2):
            x = torch.randn(2, 8, 32, 32)
            for module in (plain, compiled):
                module(x).square().mean().backward()
    torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in plain.parameters()])
    (told,) = of_kind(log, "training")
    image = 2 * 8 * 32 * 32 * 4
    of_norms = sum(size for line, size in told.kept if "normalization.py" in line or "batch_norm" in line)
    assert of_norms < image / 8, told.kept
