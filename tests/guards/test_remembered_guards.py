"""A model that has run often is guarded by the short proof its guard tree remembers: every change is noticed all the
same."""

from __future__ import annotations

import threading
import types

import pytest
import torch
from torch import nn

import framejit

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
OFFSET = 1.0
TABLE = {"k": 1.0}
OFTEN = 12


class Config:
    def __init__(self):
        self.scale = 2.0
        self.steps = [1, 2]


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.fc = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.drop = nn.Dropout(0.5)

    def factor(self):
        return 3.0

    def forward(self, x):
        x = self.norm(self.fc(self.drop(x))) * self.config.scale + OFFSET
        for step in self.config.steps:
            x = x * step
        return x * self.factor() + TABLE["k"]


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.blocks = nn.ModuleList([Block(Config()) for _ in range(3)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def same(model, compiled):
    for _ in range(3):
        torch.manual_seed(1)
        expected = model(X)
        torch.manual_seed(1)
        torch.testing.assert_close(compiled(X), expected)


def warmed(model):
    def call(x):
        return model(x)

    compiled = framejit.optimize(call, backend="eager")
    for _ in range(OFTEN):
        same(model, compiled)
    return compiled


def swap(m):
    m.blocks[2].fc = nn.Linear(4, 4, bias=False)


def own_forward(m):
    m.blocks[0].forward = types.MethodType(lambda self, x: x * 7, m.blocks[0])


CHANGES = {
    "parameter": lambda m: setattr(m.blocks[1].fc, "weight", nn.Parameter(torch.ones(4, 4))),
    "parameter data": lambda m: setattr(m.blocks[1].fc.weight, "data", torch.ones(4, 4)),
    "frozen": lambda m: m.blocks[1].fc.weight.requires_grad_(False),
    "training": lambda m: m.train(),
    "deep training": lambda m: m.blocks[2].drop.train(),
    "hook": lambda m: m.blocks[0].fc.register_forward_hook(lambda mod, args, out: out * 5),
    "pre-hook": lambda m: m.blocks[2].norm.register_forward_pre_hook(lambda mod, args: (args[0] + 1,)),
    "submodule": swap,
    "layer removed": lambda m: m.blocks.__delitem__(1),
    "layer added": lambda m: m.blocks.append(nn.ReLU()),
    "config": lambda m: setattr(m.blocks[1].config, "scale", 5.0),
    "config replaced": lambda m: setattr(m.blocks[1], "config", Config()),
    "config list": lambda m: m.blocks[1].config.steps.append(4),
    "config list item": lambda m: m.blocks[1].config.steps.__setitem__(0, 9),
    "config class": lambda m: setattr(
        m.blocks[1].config, "__class__", type("Other", (Config,), {"scale": property(lambda self: 11.0)})
    ),
    "forward of an instance": own_forward,
    "dropout rate": lambda m: (m.blocks[0].drop.train(), setattr(m.blocks[0].drop, "p", 0.9)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_in_the_model(change):
    model = Net().eval()
    compiled = warmed(model)
    CHANGES[change](model)
    same(model, compiled)
    for _ in range(OFTEN):
        same(model, compiled)


def test_hooks_come_and_go():
    model = Net().eval()
    compiled = warmed(model)
    for _ in range(3):
        handle = model.blocks[1].register_forward_hook(lambda mod, args, out: out - 1)
        same(model, compiled)
        handle.remove()
        same(model, compiled)


def test_classes_globals_and_closures(monkeypatch):
    model = Net().eval()
    compiled = warmed(model)
    with monkeypatch.context() as patch:
        patch.setattr(Block, "factor", lambda self: 13.0)
        same(model, compiled)
    same(model, compiled)
    with monkeypatch.context() as patch:
        patch.setattr(nn.Linear, "forward", lambda self, x: x + 1)
        same(model, compiled)
    same(model, compiled)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "OFFSET", 4.0)
        same(model, compiled)
    same(model, compiled)
    with monkeypatch.context() as patch:
        patch.setitem(TABLE, "k", 6.0)
        same(model, compiled)
    same(model, compiled)


def test_a_missing_attribute():
    model = Net().eval()
    compiled = warmed(model)
    del model.blocks[1].config.scale
    with pytest.raises(AttributeError, match="scale"):
        compiled(X)
    Config.scale = 8.0
    try:
        same(model, compiled)
    finally:
        del Config.scale


def test_the_closure_is_given_another_model():
    model, other = Net(0).eval(), Net(1).eval()
    compiled = warmed(model)
    compiled.__closure__[0].cell_contents = other
    same(other, compiled)
    compiled.__closure__[0].cell_contents = model
    same(model, compiled)


def test_instances_take_turns():
    models = [Net(seed).eval() for seed in range(3)]
    compiled = framejit.optimize(lambda m, x: m(x), backend="eager")
    for _ in range(OFTEN):
        for model in models:
            torch.testing.assert_close(compiled(model, X), model(X))
    models[1].blocks[0].config.scale = 6.0
    for _ in range(3):
        for model in models:
            torch.testing.assert_close(compiled(model, X), model(X))


def test_two_threads_use_and_one_changes_the_model():
    model, shared = Net().eval(), Config()
    for block in model.blocks:
        block.config = shared
    compiled = warmed(model)
    expected = {}
    for scale in (2.0, 5.0):
        shared.scale = scale
        expected[scale] = model(X)
    wrong, changes = [], [0]

    def work():
        for _ in range(150):
            before = changes[0]
            result = compiled(X)
            if before == changes[0] and not any(torch.allclose(result, e) for e in expected.values()):
                wrong.append(before)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        changes[0] += 1  # before and after: a call that sees the number stay has seen one scale
        shared.scale = 7.0 - shared.scale
        changes[0] += 1
        for t in threads:
            t.join(0.001)
    assert not wrong
    same(model, compiled)
