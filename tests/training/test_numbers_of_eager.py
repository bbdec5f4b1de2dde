"""Random numbers on CPUs are eager's, whatever the memory layout of what they are drawn for, and so is what is drawn
next."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from twins import Twins, leaf

LAYOUTS = {
    "in order": lambda x: x * 2,
    "transposed": lambda x: (x * 2).transpose(0, 1),
    "transposed argument": lambda x: x.transpose(0, 1),
    "permuted": lambda x: (x * 2).permute(2, 0, 1),
    "with gaps": lambda x: (x * 2)[:, ::2],
    "one for many": lambda x: (x * 2)[:1].expand(3, 4, 6),
}
DRAWS = {
    "dropout": lambda x: F.dropout(x, 0.4),
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.4, True),
    "feature dropout": lambda x: F.dropout1d(x, 0.4),
    "in place": lambda x: F.dropout(x * 1, 0.4, inplace=True),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "bernoulli": lambda x: x * torch.bernoulli(torch.full_like(x, 0.3)),
    "bernoulli_ of true and false": lambda x: x * torch.empty_like(x, dtype=torch.bool).bernoulli_(0.3),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(-1, 2),
    "normal_": lambda x: x * torch.empty_like(x).normal_(1, 2),
    "exponential_": lambda x: x * torch.empty_like(x).exponential_(),
    "rand_like": lambda x: x * torch.rand_like(x),
    "gumbel": lambda x: F.gumbel_softmax(x, hard=True),
}


@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, draw, gradients):
    def fn(x):
        drawn = DRAWS[draw](LAYOUTS[layout](x))
        return drawn.sin(), drawn

    def use(fn, x):
        x.grad = None
        out, drawn = fn(x)
        if gradients:
            out.sum().backward()
        return out, drawn, drawn.stride(), x.grad, torch.rand(3)

    Twins(fn, leaf(3, 4, 6).requires_grad_(gradients)).both(use)


LAYERS = {
    "encoder": lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True),
    "encoder, times first": lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.3, norm_first=True),
    "attention": lambda: nn.MultiheadAttention(8, 2, dropout=0.3, batch_first=True),
}


@pytest.mark.parametrize("layer", LAYERS)
def test_layers_of_transformers(layer):
    def use(fn, module, x):
        module.zero_grad()
        out = fn(module, x)
        out.square().sum().backward()
        return out, [p.grad for p in module.parameters()], torch.rand(3)

    def fn(module, x):
        return module(x, x, x)[0] if layer == "attention" else module(x)

    twins = Twins(fn, leaf(2, 5, 8), module=LAYERS[layer]().double().train())
    twins.both(use)
    assert {graph.reason for graph in framejit.inspect(twins.compiled).graphs} == {""}
