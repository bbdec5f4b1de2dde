"""`torch.autograd.grad` in captured code of what has hooks: autograd calls those on the way to the tensors that are
asked for, and of such a tensor itself gives what comes behind its hooks only where the gradient ends there."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.training.autograd.steps import batch, both, momentum


def on_the_way(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(F.cross_entropy(net.head(hidden), y), [*net.parameters()])


def of_the_tensors_themselves(net, optimizer, x, y):
    found, first = [], net.first(x)
    first.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
    second = net.norm(torch.tanh(first))
    second.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 3)
    return torch.autograd.grad(F.cross_entropy(net.last(second), y), [net.first.weight, first, second]), found


def at_the_end(net, optimizer, x, y):
    found, first = [], net.first(x)
    second = net.norm(torch.tanh(first))
    loss = F.cross_entropy(net.last(second), y)
    for each in (first, second, loss):
        each.register_hook(lambda gradient: found.append(gradient.sum()) or gradient * 2)
    ends = torch.autograd.grad(loss, [first], retain_graph=True)
    return ends, torch.autograd.grad(loss, [second, net.last.weight, loss]), found


def beside_the_way(net, optimizer, x, y):
    found, hidden = [], net.first(x)
    for number in range(3):
        hidden = torch.tanh(hidden)
        hidden.register_hook(lambda gradient, number=number: found.append((number, gradient.sum())))
    return torch.autograd.grad(F.cross_entropy(net.last(net.norm(hidden)), y), [net.last.weight, net.norm.bias]), found


def backward_to_some(net, optimizer, x, y):
    found, hidden = [], net.first(x)
    for number in range(3):
        hidden = torch.tanh(hidden)
        hidden.register_hook(lambda gradient, number=number: found.append((number, gradient.sum())))
    out = net.last(net.norm(hidden))
    out.register_hook(lambda gradient: found.append(("out", gradient.sum())))
    optimizer.zero_grad()
    F.cross_entropy(out, y).backward(inputs=[net.last.weight])
    return found


def kept(net, optimizer, x, y):
    first = net.first(x)
    second = net.norm(torch.tanh(first))
    first.retain_grad()
    second.retain_grad()
    gradients = torch.autograd.grad(F.cross_entropy(net.last(second), y), [second, net.norm.weight])
    return gradients, first.grad, second.grad


def unused(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(hidden.sum(), [net.last.weight, net.first.weight], allow_unused=True)


def updated_by_hand(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    parameters = [*net.parameters()]
    gradients = torch.autograd.grad(F.cross_entropy(net.head(hidden), y), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter -= 0.1 * gradient
    return gradients


def handed_on(net, optimizer, x, y):
    hidden = net.first(x)
    behind, given = hidden + 1, torch.ones_like(hidden)
    (gradient,) = torch.autograd.grad(behind, hidden, given)
    return gradient is given, gradient


def handed_on_to_leaves(net, optimizer, x, y):
    given = torch.ones_like(net.first.bias)
    optimizer.zero_grad()
    (net.first.bias + net.norm.bias).backward(given)
    given.mul_(5)
    return net.first.bias.grad is given, net.first.bias.grad is net.norm.bias.grad


WHOLE = [
    on_the_way, of_the_tensors_themselves, at_the_end, beside_the_way, backward_to_some, kept, unused, updated_by_hand,
    handed_on, handed_on_to_leaves,
]


@pytest.mark.parametrize("step", WHOLE)
def test_steps_are_one_graph(step):
    both(momentum, step, batch, calls=6)


def with_hooks_on_leaves():
    net, optimizer = momentum()
    net.found = []
    for name, parameter in net.named_parameters():
        parameter.register_hook(lambda gradient, name=name: net.found.append((name, gradient.sum())) or gradient * 2)
    return net, optimizer


def of_leaves(net, optimizer, x, y):
    net.found.clear()
    loss = F.cross_entropy(net.head(net.first(x)), y)
    return torch.autograd.grad(loss, [net.first.weight, net.last.weight, net.norm.bias]), [*net.found]


def test_hooks_of_leaves():
    both(with_hooks_on_leaves, of_leaves, batch, calls=6)


def of_leaves_and_between(net, optimizer, x, y):
    net.found.clear()
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: net.found.append(("hidden", gradient.sum())) or gradient * 3)
    loss = F.cross_entropy(net.head(hidden), y)
    return torch.autograd.grad(loss, [net.first.weight, net.last.weight]), [*net.found]


def refused(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(hidden.sum(), [net.last.weight, net.first.weight])


def of_what_requires_none(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 2)
    return torch.autograd.grad(hidden.sum(), [net.first.weight, x], allow_unused=True)


@pytest.mark.parametrize("step", [of_leaves_and_between, refused, of_what_requires_none])
def test_steps_in_parts(step):
    made = with_hooks_on_leaves if step is of_leaves_and_between else momentum
    both(made, step, batch, calls=5, breaks=True)
