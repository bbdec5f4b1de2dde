"""Hooks of gradients, put on tensors that a step has used before: what they were used for leads its gradients through
the hooks, too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from tests.training.autograd.steps import batch, both, momentum, updated

from support import of_kind, recorded, seed
from twins import same


def used(net, optimizer, x, y):
    hidden = net.first(x)
    double = hidden * 2
    hidden.register_hook(lambda gradient: gradient + 1)
    return updated(optimizer, F.cross_entropy(net.head(hidden) + net.head(double), y))


def all_of_a_forward(net, optimizer, x, y):
    made, found, hidden = [], [], x
    for part in (net.first, torch.tanh, net.norm, torch.sin, net.last):
        hidden = part(hidden)
        made.append(hidden)
    loss = F.cross_entropy(hidden, y)
    for number, each in enumerate(made):
        each.register_hook(lambda gradient, number=number: found.append((number, gradient.norm())) or gradient * 2)
    return updated(optimizer, loss), found


def kept_by_all(net, optimizer, x, y):
    first = net.first(x)
    second = net.norm(torch.tanh(first))
    loss = F.cross_entropy(net.last(second), y)
    for each in (first, second, loss):
        each.retain_grad()
    updated(optimizer, loss)
    return first.grad, second.grad, loss.grad, first


def parts(net, optimizer, x, y):
    first, second = net.first(x).chunk(2, 1)
    whole, found = torch.cat([second, first * 2], 1), []
    second.register_hook(lambda gradient: found.append(gradient.sum()))
    return updated(optimizer, F.cross_entropy(net.head(whole), y)), found


def written_before(net, optimizer, x, y):
    hidden = net.first(x)
    before = hidden * 2
    hidden.relu_()
    behind = hidden * 3
    hidden.register_hook(lambda gradient: gradient * 2)
    return updated(optimizer, F.cross_entropy(net.head(behind), y) + before.sum())


def written_only(net, optimizer, x, y):
    hidden = torch.relu_(net.first(x))
    hidden.register_hook(lambda gradient: gradient * 2)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def handed_on(net, optimizer, x, y):
    found = []
    first = net.first(x)
    second = torch.tanh(first)
    both_of_them = first + second
    for name, each in {"sum": both_of_them, "second": second, "first": first}.items():
        each.register_hook(lambda gradient, name=name: found.append((name, gradient.sum())) or gradient * 2)
    return updated(optimizer, F.cross_entropy(net.head(both_of_them), y)), found


def taken_off(net, optimizer, x, y):
    hidden, found = net.first(x), []
    total = hidden.sum()
    first = hidden.register_hook(lambda gradient: found.append(1) or gradient * 2)
    hidden.register_hook(lambda gradient: found.append(2) or gradient * 3)
    first.remove()
    return updated(optimizer, F.cross_entropy(net.head(hidden), y) + total), found


def between_two_backwards(net, optimizer, x, y):
    hidden, found = net.first(x), []
    loss = F.cross_entropy(net.head(hidden), y) + hidden.sin().sum()
    hidden.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    hidden.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 3)
    return updated(optimizer, loss), found


def without_gradients(net, optimizer, x, y):
    hidden, found = net.first(x), []
    before = hidden.detach().sum()
    hidden.register_hook(lambda gradient: found.append(gradient.sum()))
    return updated(optimizer, F.cross_entropy(net.head(hidden), y)), before, found


WHOLE = [
    used, all_of_a_forward, kept_by_all, parts, written_before, written_only, handed_on, taken_off,
    between_two_backwards, without_gradients,
]


@pytest.mark.parametrize("step", WHOLE)
def test_steps_are_one_graph(step):
    both(momentum, step, batch, calls=6)


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(5)])
        self.double()


def test_layers_alike():
    def layered(net, optimizer, x, y):
        made, hidden = [], net.first(x)
        for layer in net.layers:
            hidden = layer(hidden)
            made.append(hidden)
        loss = F.cross_entropy(net.last(hidden), y)
        for each in made:
            each.retain_grad()
        updated(optimizer, loss)
        return [each.grad for each in made]

    def make():
        net = Layers()
        return net, torch.optim.SGD(net.parameters(), lr=0.1)

    both(make, layered, batch, calls=5)


def test_batches_of_other_sizes():
    for backend in ("eager", "fuse"):
        framejit.reset()
        sides = []
        with recorded() as log:
            for fn in (used, framejit.optimize(used, backend=backend)):
                seed()
                made = momentum()
                sides.append([fn(*made, *batch(rows)) for rows in (5, 4, 6, 2, 7)] + [*made[0].parameters()])
        same(*sides)
        assert len(of_kind(log, "capture_started")) <= 3 and not of_kind(log, "graph_break")


def written_behind(net, optimizer, x, y):
    hidden = net.first(x)
    double = hidden * 2
    hidden.register_hook(lambda gradient: gradient * 2)
    hidden.mul_(3)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y) + double.sum())


def written_by_a_view(net, optimizer, x, y):
    hidden = net.first(x)
    hidden[0].mul_(2)
    double = hidden * 2
    hidden.register_hook(lambda gradient: gradient * 2)
    return updated(optimizer, F.cross_entropy(net.head(double), y))


def raises(net, optimizer, x, y):
    def hook(gradient):
        raise ValueError("a gradient")

    hidden = net.first(x)
    total = hidden.sum()
    hidden.register_hook(hook)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y) + total)


def gradients_of_gradients(net, optimizer, x, y):
    hidden, found = net.first(x), []
    loss = F.cross_entropy(net.head(hidden), y) + hidden.sin().sum()
    hidden.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
    (gradient,) = torch.autograd.grad(loss, [net.first.weight], create_graph=True)
    return updated(optimizer, loss + gradient.norm()), found


@pytest.mark.parametrize("step", [written_behind, written_by_a_view, raises, gradients_of_gradients])
def test_steps_in_parts(step):
    both(momentum, step, batch, calls=5, breaks=True)


def inside_a_checkpoint(net, optimizer, x, y):
    found = []

    def part(hidden):
        hidden = hidden.sin()
        hidden.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
        return net.norm(hidden)

    out = net.last(checkpoint(part, net.first(x), use_reentrant=False))
    return updated(optimizer, F.cross_entropy(out, y)), found


def test_hooks_inside_a_checkpoint():
    both(momentum, inside_a_checkpoint, batch, breaks=True)


def leaves(net, x):
    hidden, found = net.first(x), []
    behind = torch.tanh(hidden)
    hidden.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
    return behind, found


def test_backward_comes_later():
    sides = []
    for fn in (leaves, framejit.optimize(leaves, backend="fuse")):
        seed()
        net, _ = momentum()
        seen = []
        for number in range(4):
            seed(number)
            behind, found = fn(net, batch()[0])
            assert not found
            behind.sum().backward()
            seen.append((*found, net.first.weight.grad.clone()))
        sides.append(seen)
    same(*sides)
