"""A flag that a loop sets by what is in tensors (`bad = True`): all of the loop is captured, and the graph breaks once,
at the branch by the flag."""
import pytest
import torch
from torch import nn

import framejit

from support import Pair, of_kind, recorded


def not_finite(tensors):
    bad = False
    for tensor in tensors:
        if not torch.isfinite(tensor).all():
            bad = True
    if bad:
        return [tensor * 0 for tensor in tensors]
    return [tensor * 2 for tensor in tensors]


def negated(tensors):
    fine = True
    for tensor in tensors:
        if tensor.min() < 0:
            fine = False
    if not fine:
        return sum(tensors) - 1
    return sum(tensors) + 1


def counted(tensors):
    n = 0
    for tensor in tensors:
        n = n + 1 if tensor.sum() > 0 else n
    if n > 1:
        return tensors[0] * n, n
    return tensors[1] - n, n


def in_a_condition(tensors, extra=1.0):
    bad = False
    for tensor in tensors:
        if tensor.max() > 3:
            bad = True
    return (tensors[0] + 1 if bad and extra else tensors[0] - 1), bad


def with_an_effect(tensors):
    bad, n = False, 0
    for tensor in tensors:
        if tensor.max() > 3:
            bad = True
            n += 1
    if bad:
        torch.nn.utils.clip_grad_value_(tensors, 0.5)
    return tensors[0] * n


@pytest.mark.parametrize("program", [not_finite, negated, counted, in_a_condition, with_an_effect])
def test_one_break(program):
    pair = Pair(lambda: program)
    for values in ((1.0, 2.0), (1.0, float("nan")), (-1.0, 5.0), (5.0, -1.0), (-2.0, -2.0), (1.0, 2.0), (5.0, 5.0)):
        pair.call([torch.tensor([value, 1.0]) for value in values])
    assert len(pair.breaks) <= 1
    assert len(of_kind(pair.log, "capture_started")) <= 5


class Scaled:
    """Steps whose gradients are not finite are left out, and the scale of the loss changes."""

    def __init__(self):
        torch.manual_seed(0)
        self.module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.optimiser = torch.optim.SGD(self.module.parameters(), lr=0.1)
        self.scale, self.good = 16.0, 0

    def step(self, x):
        self.optimiser.zero_grad()
        (self.module(x).square().mean() * self.scale).backward()
        bad = False
        for parameter in self.module.parameters():
            parameter.grad.div_(self.scale)
            if not torch.isfinite(parameter.grad).all():
                bad = True
        if bad:
            self.scale, self.good = self.scale / 2, 0
        else:
            self.optimiser.step()
            self.good += 1
        return bad, self.scale, self.good


def test_a_step_with_a_scaled_loss():
    def outcome(compile_step):
        trainer = Scaled()
        step, found = compile_step(trainer.step), []
        for number in range(10):
            x = torch.randn(3, 4)
            x[0, 0] = float("nan") if number in (4, 5) else 1.0
            found.append((step(x), [p.detach().clone() for p in trainer.module.parameters()]))
        return found

    expected = outcome(lambda step: step)
    with recorded() as log:
        found = outcome(lambda step: framejit.optimize(step, backend="eager"))
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-7)
    assert len({event.fields["line"] for event in of_kind(log, "graph_break")}) == 1
    assert len(of_kind(log, "capture_started")) <= 7
