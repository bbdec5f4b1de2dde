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


ORDERS = {
    "rows": lambda x: x, "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "turned": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
    "with gaps": lambda x: x.repeat(1, 1, 1, 2)[..., ::2],
}
LOSSES = {
    "sum": lambda y: y.sum(), "columns": lambda y: y[..., ::2].square().sum(), "one image": lambda y: y[0].exp().sum(),
    "turned": lambda y: (y.transpose(0, -1) * torch.linspace(-1, 1, y.numel()).view(y.transpose(0, -1).shape)).sum(),
}
"""By whose gradients come in other orders than the norm's results."""
NORMS = {
    "batch": lambda x, w: F.batch_norm(x, None, None, w, w, True),
    "batch, plain": lambda x, w: F.batch_norm(x, None, None, training=True),
    "batch, known": lambda x, w: F.batch_norm(x, x.new_zeros(4), x.new_ones(4) * 2, w, w),
    "batch, wide": lambda x, w: F.batch_norm(x, torch.zeros(4), torch.ones(4), w.float(), w.float(), True),
    "group": lambda x, w: F.group_norm(x, 2, w, w),
    "layer": lambda x, w: F.layer_norm(x, x.shape[-2:]),
    "instance": lambda x, w: F.instance_norm(x, weight=w, bias=w),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("norm", NORMS.values(), ids=NORMS)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_gradients_that_lie_in_any_order(norm, loss, dtype):
    """ATen's backward of a batch norm takes statistics in the dtype of ATen's forward only."""
    for order in ORDERS.values():
        x = order(torch.randn(3, 4, 4, 4, generator=torch.Generator().manual_seed(0)).to(dtype))
        outcomes = []
        for compiled in (lambda fn: fn, lambda fn: framejit.optimize(fn, backend="fuse")):
            given, weight = x.detach().requires_grad_(), torch.linspace(0.5, 1.5, 4).to(dtype).requires_grad_()
            compiled(lambda x, w: loss(norm(x, w)))(given, weight).backward()
            outcomes.append([given.grad, weight.grad])
        for mine, theirs in zip(*outcomes[::-1]):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert mine.stride() == theirs.stride()
                far = (mine.double() - theirs.double()).abs().max() / theirs.double().abs().max().clamp(min=1)
                assert far <= 20 * torch.finfo(dtype).eps


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
