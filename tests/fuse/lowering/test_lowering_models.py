"""Blocks of real models, lowered and compared with eager."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.fuse.lowering.lowering_checks import check, externs


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x
        return self.relu(y)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.heads, self.fused = heads, fused
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(64, 64, dtype=torch.bool)))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in self.qkv(x).split(c, dim=2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
            y = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(b, t, c))


class Block(nn.Module):
    """A layer of GPT-2 (norm first) or of BERT (norm last)."""

    def __init__(self, width: int, heads: int, fused: bool, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(width, heads, fused)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(approximate="tanh" if norm_first else "none"),
            nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.mlp(x))


class Llama(nn.Module):
    """RMS norm, rotary embedding, grouped heads, gated MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.q, self.kv, self.o = (
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.gate, self.up, self.down = (
            nn.Linear(width, 2 * width), nn.Linear(width, 2 * width), nn.Linear(2 * width, width),
        )
        self.weight = nn.Parameter(torch.randn(width))

    def norm(self, x):
        return self.weight * (x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def rotate(self, x, cos, sin):
        return x * cos + torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), dim=-1) * sin

    def forward(self, x):
        b, t, c = x.shape
        angles = torch.outer(
            torch.arange(t, dtype=torch.float32), 1.0 / (10000 ** (torch.arange(0, self.size, 2).float() / self.size))
        )
        angles = torch.cat((angles, angles), dim=-1)
        h = self.norm(x)
        q = self.q(h).view(b, t, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(h).view(b, t, 2, self.heads // 2, self.size).unbind(2)
        k, v = (part.transpose(1, 2).repeat_interleave(2, dim=1) for part in (k, v))
        q, k = self.rotate(q, angles.cos(), angles.sin()), self.rotate(k, angles.cos(), angles.sin())
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, c))
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_residual_block(training, memory_format):
    model = Residual(8).train(training).to(memory_format=memory_format)
    graph = check(model, torch.randn(2, 8, 9, 9).to(memory_format=memory_format), fused=False, rtol=1e-4, atol=1e-4)
    assert set(externs(graph)) - {"_increment_version", "count_exactly"} == {"conv2d"}


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_transformer_layer(fused, norm_first, dtype):
    model = Block(32, 4, fused, norm_first).eval().to(dtype)
    tolerance = {"atol": 5e-2, "rtol": 5e-2} if dtype == torch.bfloat16 else {"atol": 1e-4, "rtol": 1e-4}
    graph = check(model, torch.randn(2, 7, 32).to(dtype), fused=False, **tolerance)
    # small products in float32 are kernels, where the processor is one for them
    assert set(externs(graph)) - {"linear"} == {"scaled_dot_product_attention" if fused else "matmul"}
    assert "linear" in externs(graph) or dtype == torch.float32


def test_llama_layer():
    graph = check(Llama(32, 4).eval(), torch.randn(2, 7, 32), fused=False, atol=1e-4, rtol=1e-4)
    assert set(externs(graph)) <= {"linear", "scaled_dot_product_attention", "repeat_interleave", "index_select"}


def test_gradients_are_not_fused():
    import framejit
    from framejit.backends.fuse.not_fusable import NotFusable
    from tests.fuse.stages import lower

    reasons = []

    def backend(gm, examples):
        try:
            lower(gm, examples)
        except NotFusable as e:
            reasons.append(str(e))
        return gm.forward

    with torch.enable_grad():
        framejit.optimize(lambda x, w: (x @ w).relu(), backend=backend)(
            torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)
        )
    assert reasons == ["its results need gradients"]
    assert torch.is_grad_enabled() is False


def test_parameters_outside_of_autograd():
    def f(x, w):
        with torch.no_grad():
            return (x * w).relu()

    with torch.enable_grad():
        check(f, torch.randn(3), nn.Parameter(torch.randn(3)))
