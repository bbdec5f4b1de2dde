"""`module.to()`, `.float()` and the like inside captured code: nothing is left of them where nothing is converted."""
from __future__ import annotations

import pytest
import torch
from torch import nn

from support import ANY, Pair


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.norm = nn.BatchNorm1d(2)
        self.scale = nn.Parameter(torch.ones(2))
        self.same = self.scale
        self.register_buffer("shift", torch.arange(2))

    def forward(self, x):
        return self.norm(self.layer(x)) * self.scale + self.shift


def world(convert, gradients):
    def make():
        torch.manual_seed(3)
        module = Normed()
        parameters = [*module.parameters()]
        if gradients:
            module(torch.randn(4, 2)).sum().backward()

        def fn(x):
            convert(module, x)
            return module(x.to(module.scale.dtype))

        def state():
            now = [*module.parameters()]
            return (
                [one is other for one, other in zip(parameters, now)], [p._version for p in now], now,
                [p.grad for p in now], [*module.buffers()], module.training,
            )

        return fn, state

    return make


NOTHING_TO_DO = {
    "device": lambda m, x: m.to("cpu"), "device of a tensor": lambda m, x: m.to(x.device),
    "cpu()": lambda m, x: m.cpu(), "tensor": lambda m, x: m.to(x),
    "named": lambda m, x: m.to(device=x.device, dtype=torch.float32),
    "dtype": lambda m, x: m.to(torch.float32), "float()": lambda m, x: m.float().eval(),
    "memory format": lambda m, x: m.to(memory_format=torch.channels_last),
    "data": lambda m, x: setattr(m.scale, "data", m.scale),
}
OTHERS = {
    "double()": lambda m, x: m.double(), "there and back": lambda m, x: m.half().float(),
    "dtype": lambda m, x: m.to(torch.float64),
    "tensor": lambda m, x: m.to(x.double()), "a function": lambda m, x: m._apply(lambda t: t.clone()),
}
REFUSED = {
    "ints": lambda m, x: m.to(torch.int32), "no device": lambda m, x: m.to("nowhere"),
    "too much": lambda m, x: m.to(x, x),
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("convert", NOTHING_TO_DO.values(), ids=NOTHING_TO_DO)
def test_nothing_is_left_where_nothing_is_converted(convert, gradients):
    pair = Pair(world(convert, gradients), atol=1e-6)
    for rows in (3, 3, 4):
        pair.call(torch.randn(rows, 2))
    pair.expect(breaks=0, graphs=ANY)


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("convert", OTHERS.values(), ids=OTHERS)
def test_what_is_converted(convert, gradients):
    pair = Pair(world(convert, gradients), atol=1e-6)
    for _ in range(3):
        pair.call(torch.randn(3, 2))


@pytest.mark.parametrize("convert", REFUSED.values(), ids=REFUSED)
def test_what_torch_refuses(convert):
    pair = Pair(world(convert, False), atol=1e-6)
    for _ in range(2):
        pair.call(torch.randn(3, 2))
        assert pair.raised is not None
