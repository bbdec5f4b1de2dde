"""Steps of training that put hooks on modules and tensors, or run modules that have some: numbers are eager's, and few
parts are compiled, whatever numbers the handles get."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import of_kind, recorded, seed


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, x):
        return x + self.down(torch.tanh(self.up(x)))


def outcome(make_step, compile_step, steps=12):
    seed(0)
    module = nn.Sequential(Block(), Block(), nn.Linear(5, 3)).double()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    run, found = compile_step(make_step(module)), []
    for number in range(steps):
        x = torch.randn(4, 5, dtype=torch.float64).requires_grad_()
        loss, *seen = run(number, x, torch.arange(4) % 3, optimiser)
        found.append((loss.detach(), x.grad, seen))
    return found, [p.detach().clone() for p in module.parameters()]


def train(module, x, y, optimiser):
    loss = F.cross_entropy(module(x), y)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    return loss


def on_a_tensor(module):
    def step(number, x, y, optimiser):
        seen = {}
        hidden = module[0](x)
        handle = hidden.register_hook(lambda gradient: seen.__setitem__("gradient", gradient))
        loss = F.cross_entropy(module[2](module[1](hidden)), y)
        optimiser.zero_grad()
        loss.backward()
        handle.remove()
        optimiser.step()
        return loss, seen["gradient"]

    return step


def on_tensors(module):
    def step(number, x, y, optimiser):
        seen, handles, hidden = [], [], x
        for part in module:
            hidden = part(hidden)
            handles.append(hidden.register_hook(lambda gradient: seen.append(gradient.norm())))
        loss = F.cross_entropy(hidden, y)
        optimiser.zero_grad()
        loss.backward()
        for handle in handles:
            handle.remove()
        optimiser.step()
        return loss, seen

    return step


def for_features(module):
    def step(number, x, y, optimiser):
        seen = {}
        handles = [
            part.register_forward_hook(lambda part, args, out, place=place: seen.__setitem__(place, out.detach()))
            for place, part in enumerate(module)
        ]
        loss = train(module, x, y, optimiser)
        for handle in handles:
            handle.remove()
        return loss, seen, [len(part._forward_hooks) for part in module]

    return step


def of_the_backward(module):
    seen = {}
    module[0].register_full_backward_hook(lambda part, given, out: seen.__setitem__("norm", out[0].norm().item()))
    module[1].register_full_backward_hook(lambda part, given, out: (given[0] * 0.5,))
    module[1].register_full_backward_pre_hook(lambda part, out: (out[0] * 2,))

    def step(number, x, y, optimiser):
        return train(module, x, y, optimiser), dict(seen)

    return step


def of_each_backward(module):
    seen = {}
    for name, part in module.named_modules():
        part.register_full_backward_hook(
            lambda part, given, out, name=name: seen.__setitem__(name, [g.norm() for g in (*given, *out)])
        )

    def step(number, x, y, optimiser):
        return train(module, x, y, optimiser), dict(seen)

    return step


def for_some_steps(module):
    seen, handles = [], []

    def step(number, x, y, optimiser):
        if number == 4:
            handles.append(module[1].register_full_backward_hook(lambda part, given, out: seen.append(out[0].sum())))
        if number == 9:
            handles.pop().remove()
        return train(module, x, y, optimiser), [*seen]

    return step


def without_gradients(module):
    module[0].register_full_backward_hook(lambda part, given, out: None)

    def step(number, x, y, optimiser):
        with torch.no_grad():
            return F.cross_entropy(module(x), y), x

    return step


STEPS = {
    "a hook on a tensor": (on_a_tensor, 2), "hooks on tensors": (on_tensors, 2), "features": (for_features, 20),
    "hooks of a backward": (of_the_backward, 14), "hooks of each backward": (of_each_backward, 30),
    "hooks for some steps": (for_some_steps, 40), "hooks of a backward that is not wanted": (without_gradients, 1),
}


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("name", STEPS)
def test_hooks_in_steps(name):
    make_step, most = STEPS[name]
    expected = outcome(make_step, lambda step: step)
    with recorded() as log:
        found = outcome(make_step, lambda step: framejit.optimize(step, backend="fuse"))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert len(of_kind(log, "capture_started")) <= most
