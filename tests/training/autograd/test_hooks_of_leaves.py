"""Hooks that the program has put on parameters: `backward()` in captured code calls them as autograd does, in its
order, and the step stays one graph."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from tests.training.autograd.steps import batch, both, loss_of, perceptron

from support import of_kind, recorded


class Many(nn.Module):
    """Parameters of which several get their gradients at once."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ParameterList([nn.Parameter(torch.randn(6, dtype=torch.float64)) for _ in range(9)])

    def forward(self, x):
        p = self.parts
        rows = torch.stack([*p]).tanh()[:3] + p[2] * p[3] * p[4] + torch.addcmul(p[6], p[7], p[8])
        return x @ rows.T + torch.cat([p[5], p[1]]).sum()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.out = nn.LSTM(6, 4, 2, dtype=torch.float64), nn.Linear(4, 3, dtype=torch.float64)

    def forward(self, x):
        return self.out(self.layers(x[:, None])[0][:, 0])


def with_hooks(put, module=perceptron):
    """What makes a module with hooks, its optimizer, and a list for what they see."""

    def make():
        made = module()
        seen = []
        for name, parameter in made.named_parameters():
            put(name, parameter, seen)
        return made, torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9), seen

    return make


def look(name, parameter, seen):
    parameter.register_hook(lambda gradient: seen.append((name, gradient.norm(), parameter.grad is None)))


def change(name, parameter, seen):
    parameter.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    parameter.register_hook(lambda gradient: gradient * 2)


def write(name, parameter, seen):
    def hook(gradient):
        gradient.mul_(2)

    parameter.register_hook(hook)


def look_behind(name, parameter, seen):
    parameter.register_post_accumulate_grad_hook(
        lambda leaf: seen.append((name, leaf.grad.norm(), leaf is parameter, torch.is_grad_enabled()))
    )


def look_at_both(name, parameter, seen):
    look(name, parameter, seen)
    look_behind(name, parameter, seen)


def update(name, parameter, seen):
    optimizer = torch.optim.Adam([parameter], lr=0.01)

    def hook(leaf):
        optimizer.step()
        optimizer.zero_grad()

    parameter.register_post_accumulate_grad_hook(hook)


def take_off(name, parameter, seen):
    parameter.register_hook(lambda gradient: gradient * 2).remove()


def look_at_weights(name, parameter, seen):
    if parameter.dim() > 1:
        look(name, parameter, seen)


HOOKS = {
    "that look": look, "that change": change, "that write": write, "behind": look_behind, "on both sides": look_at_both,
    "that update": update, "taken off": take_off, "of some": look_at_weights,
}


def train(module, optimizer, seen, x, y):
    seen.clear()
    loss = loss_of(module, x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss, [*seen]


def accumulate(module, optimizer, seen, x, y):
    seen.clear()
    for number in range(2):
        loss_of(module, x + number, y).backward()
    optimizer.step()
    optimizer.zero_grad()
    return [*seen]


def use_twice(module, optimizer, seen, x, y):
    seen.clear()
    logits = module(x) + module(x.flip(0)).tanh()
    loss = F.cross_entropy(logits, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), logits, [*seen]


def go_back_twice(module, optimizer, seen, x, y):
    seen.clear()
    loss = loss_of(module, x, y)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return [*seen]


def average(module, optimizer, seen, x, y):
    loss = train(module, optimizer, seen, x, y)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.data.mul_(0.99)
    return loss, [parameter.detach() for parameter in module.parameters()]


@pytest.mark.parametrize("name", HOOKS)
@pytest.mark.parametrize("step", [train, accumulate, use_twice, average])
def test_steps_are_one_graph(step, name):
    both(with_hooks(HOOKS[name]), step, batch)


@pytest.mark.parametrize("name", ["that look", "that change", "behind"])
def test_two_backwards_through_one_graph(name):
    both(with_hooks(HOOKS[name]), go_back_twice, batch)


@pytest.mark.parametrize("module", [Many, Recurrent])
@pytest.mark.parametrize("name", ["that look", "behind"])
def test_hooks_are_called_in_the_order_of_autograd(name, module):
    both(with_hooks(HOOKS[name], module), train, batch)


def keep(module, optimizer, seen, x, y):
    loss = loss_of(module, x, y)
    loss.backward(retain_graph=True)
    return loss


def view(module, optimizer, seen, x, y):
    weight = module[0].weight.view(-1)
    (loss_of(module, x, y) + weight.square().sum()).backward()
    optimizer.zero_grad()
    return weight


def compute_again(module, optimizer, seen, x, y):
    loss = F.cross_entropy(checkpoint(module, x, use_reentrant=False), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def hook_what_is_computed(module, optimizer, seen, x, y):
    seen.clear()
    hidden = module[0](x)
    hidden.register_hook(lambda gradient: seen.append(("hidden", gradient.norm())))
    F.cross_entropy(module[3](hidden), y).backward()
    optimizer.zero_grad()
    return [*seen]


@pytest.mark.parametrize("step", [keep, view, compute_again, hook_what_is_computed])
def test_steps_in_parts(step):
    both(with_hooks(look), step, batch, breaks=True)


def test_a_hook_that_raises():
    def refuse(name, parameter, seen):
        def hook(leaf):
            seen.append(name)
            if len(seen) == 3:
                raise ValueError("a gradient")

        parameter.register_post_accumulate_grad_hook(hook)

    both(with_hooks(refuse), train, batch)


def test_hooks_put_on_between_calls():
    def hooked(number, module, seen):
        if number == 1:
            module[0].weight.register_hook(lambda gradient: gradient * 2)
        if number == 2:
            module[0].bias.register_post_accumulate_grad_hook(lambda w: seen.append(round(w.grad.norm().item(), 9)))

    def step(module, seen, x, y):
        loss_of(module, x, y).backward()
        return list(seen)

    both(lambda: (perceptron(), []), step, batch, before=hooked)


def test_hooks_put_on_again_for_each_call():
    compiled = framejit.optimize(train, backend="fuse")
    module, optimizer, seen = with_hooks(take_off)()
    with recorded() as log:
        for _ in range(6):
            handle = module[0].weight.register_hook(lambda gradient: gradient * 0)
            compiled(module, optimizer, seen, *batch())
            handle.remove()
            assert not module[0].weight.grad.any() and module[3].weight.grad.any()
    assert len(of_kind(log, "capture_started")) <= 3 and not of_kind(log, "graph_break")
