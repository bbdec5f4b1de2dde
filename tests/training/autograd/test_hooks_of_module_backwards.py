"""`register_full_backward_hook()` and `register_full_backward_pre_hook()` of modules in steps that have the backward,
too: their hooks are part of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from tests.training.autograd.steps import Net, batch, both, updated

from support import of_kind, recorded, seed
from twins import same


class Chain(Net):
    def forward(self, x):
        return self.head(self.first(x))


class Gate(nn.Module):
    """A module that takes and gives several things."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, a, b, k):
        return self.linear(a) + b * k, a * b, k


class Gated(Net):
    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate().double()

    def forward(self, x):
        hidden = self.first(x)
        given, *_ = self.gate(hidden, hidden.detach(), 2)
        return self.last(given + self.norm(hidden))


class HalfUsed(Gated):
    def forward(self, x):
        hidden = self.first(x)
        _, product, _ = self.gate(hidden, hidden.sin(), 2)
        return self.last(product + self.norm(hidden))


class GivenTwice(Gated):
    def forward(self, x):
        hidden = self.first(x)
        return self.last(sum(self.gate(hidden, hidden, 2)[:2]))


class CalledTwice(Chain):
    def forward(self, x):
        return self.last(self.norm(torch.tanh(self.norm(self.first(x)))))


class Written(Chain):
    def forward(self, x):
        return self.last(torch.relu_(self.norm(self.first(x))))


class WrittenBehind(Chain):
    def forward(self, x):
        hidden = self.first(x)
        norm = self.norm(hidden)
        hidden.mul_(2)
        return self.last(norm + hidden)


def norms(gradients):
    return [None if gradient is None else gradient.norm() for gradient in gradients]


def look(net):
    for name, part in net.named_modules():
        if name not in ("", "first"):
            part.register_full_backward_hook(
                lambda part, going, coming, name=name: net.found.append((name, norms(going), norms(coming)))
            )


def look_at_gate(net):
    net.gate.register_full_backward_hook(
        lambda part, going, coming: net.found.append((norms(going), norms(coming)))
    )


def look_at_all(net):
    look(net)
    for each in (net, net.first):
        each.register_full_backward_hook(lambda part, going, coming: net.found.append((norms(going), norms(coming))))


def change(net):
    net.norm.register_full_backward_hook(lambda part, going, coming: (going[0] * 2,))
    net.norm.register_full_backward_pre_hook(lambda part, coming: (coming[0] * 3,))
    net.last.register_full_backward_hook(lambda part, going, coming: (going[0].clamp(-0.01, 0.01),))


def change_several(net):
    net.gate.register_full_backward_hook(
        lambda part, going, coming: tuple(None if gradient is None else gradient * 2 for gradient in going)
    )


def end(net):
    net.norm.register_full_backward_hook(lambda part, going, coming: (None,))


def hook_results(net):
    look(net)

    def hook(part, args, result):
        result.register_hook(lambda gradient: net.found.append(gradient.sum()) or gradient * 2)

    net.norm.register_forward_hook(hook)


def see_state(net):
    net.norm.register_full_backward_hook(
        lambda part, going, coming: net.found.append((torch.is_grad_enabled(), net.last.bias.grad is None))
    )


def fail(net):
    def hook(part, going, coming):
        raise ValueError("a gradient")

    net.norm.register_full_backward_hook(hook)


def give_too_many(net):
    net.norm.register_full_backward_hook(lambda part, going, coming: (going[0], going[0]))


def with_hooks(kind: type[Net], put_on: Callable[[Any], None]) -> Callable[[], tuple[Any, ...]]:
    def make():
        net = kind()
        net.found = []
        put_on(net)
        return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

    return make


def loss_of(net, x, y):
    net.found.clear()
    return F.cross_entropy(net(x), y)


WHOLE = [
    (Chain, look), (Chain, change), (Chain, end), (Chain, hook_results), (Chain, see_state), (Gated, look),
    (Gated, change_several), (HalfUsed, look_at_gate), (HalfUsed, change_several), (GivenTwice, look),
    (CalledTwice, look), (CalledTwice, change),
]


@pytest.mark.parametrize("kind, put_on", WHOLE)
def test_steps_are_one_graph(kind, put_on):
    def step(net, optimizer, x, y):
        return updated(optimizer, loss_of(net, x, y)), [*net.found]

    both(with_hooks(kind, put_on), step, batch, calls=6)


APART = [(Chain, fail), (Chain, give_too_many), (Written, look), (WrittenBehind, look), (HalfUsed, look)]


@pytest.mark.parametrize("kind, put_on", APART)
def test_steps_in_parts(kind, put_on):
    def step(net, optimizer, x, y):
        return updated(optimizer, loss_of(net, x, y)), [*net.found]

    both(with_hooks(kind, put_on), step, batch, breaks=True)


def test_inputs_that_want_gradients():
    def step(net, optimizer, x, y):
        x = x.detach().requires_grad_()
        return updated(optimizer, loss_of(net, x, y)), [*net.found], x.grad

    both(with_hooks(Chain, look_at_all), step, batch, calls=6)


def test_torch_warns_where_no_input_wants_gradients():
    def step(net, optimizer, x, y):
        return updated(optimizer, loss_of(net, x, y)), [*net.found]

    compiled, (net, optimizer) = framejit.optimize(step, backend="eager"), with_hooks(Chain, look_at_all)()
    with recorded() as log:
        for _ in range(3):
            with pytest.warns(UserWarning, match="no inputs require gradients"):
                compiled(net, optimizer, *batch())
    assert not any("warn" in event.fields["reason"] for event in of_kind(log, "graph_break"))


def test_the_result_leaves_with_its_history():
    def step(net, optimizer, x, y):
        net.found.clear()
        out = net(x)
        updated(optimizer, F.cross_entropy(out, y))
        return out, [*net.found]

    both(with_hooks(Chain, look), step, batch, breaks=True)


@pytest.mark.parametrize("name", ["first", "last"])
def test_gradients_that_are_asked_for(name):
    def step(net, optimizer, x, y):
        return torch.autograd.grad(loss_of(net, x, y), [getattr(net, name).weight]), [*net.found]

    both(with_hooks(Chain, look), step, batch, calls=6)


def test_two_backwards():
    def step(net, optimizer, x, y):
        loss = loss_of(net, x, y)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        return updated(optimizer, loss * 2), [*net.found]

    both(with_hooks(Chain, look), step, batch, calls=6)


def test_what_a_module_was_given_is_hooked_later():
    def step(net, optimizer, x, y):
        net.found.clear()
        hidden = net.first(x)
        norm = net.norm(hidden)
        hidden.register_hook(lambda gradient: net.found.append(gradient.sum()) or gradient * 2)
        return updated(optimizer, F.cross_entropy(net.last(norm), y)), [*net.found]

    both(with_hooks(Chain, look), step, batch, calls=6)


def test_without_gradients():
    def step(net, optimizer, x, y):
        with torch.no_grad():
            return net(x), [*net.found]

    both(with_hooks(Chain, look_at_all), step, batch)


def test_backward_comes_later():
    def forward(net, x, y):
        return loss_of(net, x, y)

    sides = []
    for fn in (forward, framejit.optimize(forward, backend="fuse")):
        seed()
        net, optimizer = with_hooks(Chain, look)()
        seen = []
        for number in range(4):
            seed(number)
            loss = fn(net, *batch())
            seen.append((updated(optimizer, loss), [*net.found], [*net.parameters()]))
        sides.append(seen)
    same(*sides)


def test_gradients_of_gradients():
    def step(net, optimizer, x, y):
        loss = loss_of(net, x, y)
        (gradient,) = torch.autograd.grad(loss, [net.first.weight], create_graph=True)
        return updated(optimizer, loss + gradient.norm()), [*net.found]

    both(with_hooks(Chain, look), step, batch, breaks=True)


def test_inside_a_checkpoint():
    def step(net, optimizer, x, y):
        net.found.clear()
        hidden = checkpoint(net.norm, net.first(x), use_reentrant=False)
        return updated(optimizer, F.cross_entropy(net.last(hidden), y)), [*net.found]

    both(with_hooks(Chain, look), step, batch, breaks=True)
