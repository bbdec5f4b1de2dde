"""Recurrent layers of many steps are captured with the operations of a few, whatever is made of them."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn

import framejit
from framejit.fakes.fake_mode import Fakes
from framejit.fakes.recurrent_layers import FEW

from comparison import assert_same

KINDS = {"gru": nn.GRU, "tanh": nn.RNN, "relu": partial(nn.RNN, nonlinearity="relu")}
LENGTHS = (FEW + 1, 40, 160)
"""Numbers of steps, of which the first is to learn what else is tried once."""


@pytest.fixture
def on_fakes(monkeypatch):
    """The operations that were tried on fakes, in order."""
    found = []
    dispatch = Fakes.dispatch

    def noted(self, func, *rest):
        found.append(str(func))
        return dispatch(self, func, *rest)

    monkeypatch.setattr(Fakes, "dispatch", noted)
    return found


def layer(kind, **settings):
    torch.manual_seed(0)
    return KINDS[kind](3, 4, 2, **settings).double()


def outcome(call, net, x, wants_gradients):
    net.zero_grad()
    x = x.clone().requires_grad_(wants_gradients)
    with torch.set_grad_enabled(wants_gradients):
        out, state = call(x)
        facts = [(t.stride(), t._version, t.requires_grad, t._is_view()) for t in (out, state)]
        if wants_gradients:
            (out.square().sum() + state.sum()).backward()
    return out, state, facts, x.grad, [p.grad for p in net.parameters()]


def counts(kind, on_fakes, wants_gradients, backend, **settings):
    """How many operations are tried on fakes, for each number of steps; results are compared with eager's."""
    found = []
    for steps in LENGTHS:
        net = layer(kind, **settings)
        other = copy.deepcopy(net)
        compiled = framejit.optimize(other, backend=backend, fullgraph=True, dynamic=False)
        x = torch.randn(2, steps, 3) if settings.get("batch_first") else torch.randn(steps, 2, 3)
        before = len(on_fakes)
        for scale in (1.0, 2.0):
            expected = outcome(net, net, x.double() * scale, wants_gradients)
            got = outcome(compiled, other, x.double() * scale, wants_gradients)
            assert_same(got, expected, atol=1e-9, rtol=1e-9)
        found.append(len(on_fakes) - before)
    return found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("wants_gradients", [False, True])
@pytest.mark.parametrize("settings", [{}, {"batch_first": True}, {"bidirectional": True}, {"bias": False}])
@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_take_no_more_operations_than_a_few(kind, settings, wants_gradients, backend, on_fakes):
    first, some, many = counts(kind, on_fakes, wants_gradients, backend, **settings)
    assert 0 < some == many <= first
