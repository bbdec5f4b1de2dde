"""Convolutions of half precision in channels-last memory, forward and backward; here on the CPU, as if it were a
GPU."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.targets.cpu import CpuTarget


@pytest.fixture
def as_on_gpus(monkeypatch):
    monkeypatch.setattr(CpuTarget, "prefers_layouts", True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 3, padding=1, stride=2)
        self.norm, self.short, self.last = nn.BatchNorm2d(8), nn.Conv2d(3, 8, 1, stride=2), nn.Linear(8, 5)

    def forward(self, x):
        y = self.second(F.relu(self.norm(self.first(x))))
        y = F.max_pool2d(y + self.short(x), 2)
        return self.last(y.mean((2, 3)))


def images_too(x, w):
    y = F.conv2d(x, w, padding=1)
    return y, F.conv2d(y.relu(), w[:3, :3]).flatten(1).sum(1)


def depthwise(x, w):
    return F.conv2d(x, w[:, :1], groups=3).sum((2, 3))


def transposed(x, w):
    return F.conv_transpose2d(x, w, stride=2).square().mean()


def convolutions(fn):
    """What the recorded halves say of each convolution."""
    return [
        line
        for graph in framejit.inspect(fn).graphs
        for line in str(graph.recorded).split("\n")
        if "aten.convolution" in line
    ]


def test_a_block_of_a_network(as_on_gpus):
    torch.manual_seed(0)
    module = Block().to(torch.bfloat16)
    other = copy.deepcopy(module)
    compiled = framejit.optimize(other, backend="fuse")
    exact = copy.deepcopy(module).double()
    for _ in range(3):
        # many images: in each rounding may decide which of a pooled place's elements is the largest
        x = torch.randn(64, 3, 16, 16, dtype=torch.bfloat16)
        for m, call, given in ((module, module, x), (other, compiled, x), (exact, exact, x.double())):
            m.zero_grad()
            call(given).square().mean().backward()
        for name, p in exact.named_parameters():
            mine, theirs = (m.get_parameter(name).grad for m in (other, module))
            assert mine.stride() == theirs.stride() and mine.dtype == theirs.dtype
            scale = p.grad.abs().max()
            assert (mine - p.grad).abs().max() <= 2 * (theirs - p.grad).abs().max() + 0.02 * scale, name
    torch.testing.assert_close(other.norm.running_var, module.norm.running_var)
    lines = convolutions(compiled)
    assert (
        len(lines) == 6
        and sum("bf16[64, 8, 8, 8 | 512, 1, 64, 8] = aten.convolution.default" in line for line in lines) == 2
    ), lines


@pytest.mark.parametrize("fn", [images_too, depthwise, transposed])
def test_results_and_gradients_lie_as_eager_s(as_on_gpus, fn):
    torch.manual_seed(0)
    compiled = framejit.optimize(fn, backend="fuse")
    for _ in range(3):
        x, w = torch.randn(2, 3, 8, 8).bfloat16(), torch.randn(3, 3, 3, 3).bfloat16()
        outcomes = []
        for call, dtype in ((fn, torch.bfloat16), (compiled, torch.bfloat16), (fn, torch.float64)):
            given = [t.to(dtype).requires_grad_() for t in (x, w)]
            out = call(*given)
            outs = out if isinstance(out, tuple) else (out,)
            outcomes.append([*outs, *torch.autograd.grad(sum(o.float().square().mean() for o in outs), given)])
        for expected, got, exact in zip(*outcomes):
            assert (expected.shape, expected.stride(), expected.dtype) == (got.shape, got.stride(), got.dtype)
            error, of_eager = ((t - exact).abs().max() for t in (got, expected))
            assert error <= 2 * of_eager + 0.01 * exact.abs().max()  # libraries round by the processor they find
    assert convolutions(compiled)


def test_group_norms_take_contiguous_images(as_on_gpus):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.Conv2d(8, 8, 3)).to(torch.bfloat16)
    other = copy.deepcopy(module)
    compiled = framejit.optimize(lambda x: other(x).float().mean((2, 3)).square().sum(), backend="fuse")
    x = torch.randn(2, 3, 9, 9, dtype=torch.bfloat16)
    compiled(x).backward()
    module(x).float().mean((2, 3)).square().sum().backward()
    for mine, expected in zip(other.parameters(), module.parameters()):
        torch.testing.assert_close(mine.grad, expected.grad, rtol=0.1, atol=0.1)
    lines = "\n".join(str(graph.recorded) for graph in framejit.inspect(compiled).graphs).split("\n")
    norms = [place for place, line in enumerate(lines) if "aten.native_group_norm" in line]
    assert len(norms) == 1  # the backward's is arithmetic
    for place in norms:
        taken = [f"{name}:" for name in re.findall(r"%\d+", lines[place].partition("default(")[2])[:2]]
        made = [line for line in lines[:place] if line.startswith(tuple(taken))]
        assert made and " | " not in made[-1].partition("=")[0]
