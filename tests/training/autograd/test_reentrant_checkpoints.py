"""`checkpoint(..., use_reentrant=True)` in steps: part of the one graph where the backward is in it, too; what such a
checkpoint does otherwise than one without is left to Python."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from tests.training.autograd.steps import batch, both, perceptron, updated


def make():
    module = perceptron()
    return module, torch.optim.Adam(module.parameters(), lr=0.01)


def again(function, *args):
    return checkpoint(function, *args, use_reentrant=True)


def modules(module, optimizer, x, y):
    hidden = again(module[1:3], module[0](x))
    return updated(optimizer, F.cross_entropy(module[3](hidden), y))


def two_in_turn(module, optimizer, x, y):
    hidden = again(module[1], module[0](x))
    hidden = again(lambda first, second: (first * second).tanh(), hidden, hidden)
    return updated(optimizer, F.cross_entropy(module[3](hidden), y)), hidden.detach()


def two_results(module, optimizer, x, y):
    first, second = again(lambda hidden: (hidden.sin(), hidden.cos()), module[0](x))
    return updated(optimizer, F.cross_entropy(module[3](first * second), y))


def random_numbers(module, optimizer, x, y):
    hidden = again(lambda hidden: F.dropout(hidden, 0.4) * torch.rand(10), module[0](x))
    return updated(optimizer, F.cross_entropy(module[3](hidden), y))


def autocast(module, optimizer, x, y):
    hidden = module[0](x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = again(lambda hidden: module[3](hidden.tanh()), hidden)
    updated(optimizer, F.cross_entropy(logits.double(), y))
    return logits.dtype


@pytest.mark.parametrize("step", [modules, two_in_turn, two_results, random_numbers, autocast])
def test_steps_are_one_graph(step):
    both(make, step, batch)


def of_the_data(module, optimizer, x, y):
    return updated(optimizer, F.cross_entropy(again(module, x), y))


def mode_decides(module, optimizer, x, y):
    hidden = again(lambda hidden: hidden * (2 if torch.is_grad_enabled() else 3), module[0](x))
    return updated(optimizer, F.cross_entropy(module[3](hidden), y))


def takes_from_elsewhere(module, optimizer, x, y):
    hidden = module[0](x)
    other = hidden * 2
    return updated(optimizer, F.cross_entropy(module[3](again(lambda hidden: hidden * other, hidden)), y))


def asks_for_gradients(module, optimizer, x, y):
    loss = F.cross_entropy(module[3](again(torch.tanh, module[0](x))), y)
    return torch.autograd.grad(loss, [*module.parameters()], allow_unused=True)


def names_leaves(module, optimizer, x, y):
    loss = F.cross_entropy(module[3](again(torch.tanh, module[0](x))), y)
    loss.backward(inputs=[module[0].weight])
    return loss


def goes_back_twice(module, optimizer, x, y):
    loss = F.cross_entropy(module[3](again(torch.tanh, module[0](x))), y)
    loss.backward(retain_graph=True)
    loss.backward()
    optimizer.zero_grad()
    return loss


def counts_calls(module, optimizer, x, y):
    calls = []

    def counted(hidden):
        calls.append(torch.is_grad_enabled())
        return hidden.tanh()

    updated(optimizer, F.cross_entropy(module[3](again(counted, module[0](x))), y))
    return calls


def without_gradients(module, optimizer, x, y):
    with torch.no_grad():
        return again(module, x)


def given_out(module, optimizer, x, y):
    return again(module[1:3], module[0](x))


def whole_numbers(module, optimizer, x, y):
    hidden, best = again(lambda hidden: (hidden.tanh(), hidden.argmax(1)), module[0](x))
    return updated(optimizer, F.cross_entropy(module[3](hidden), y)), best


APART = [
    of_the_data, mode_decides, takes_from_elsewhere, asks_for_gradients, names_leaves, goes_back_twice, counts_calls,
    without_gradients, given_out, whole_numbers,
]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("step", APART)
def test_what_differs_is_left_to_python(step):
    both(make, step, batch, breaks=True)


def test_hooks_of_parameters():
    def step(module, optimizer, seen, x, y):
        seen.clear()
        hidden = again(module[1], module[0](x))
        updated(optimizer, F.cross_entropy(module[3](again(module[1], hidden)), y))
        return [*seen]

    def make_hooked():
        (module, optimizer), seen = make(), []
        for name, parameter in module.named_parameters():
            parameter.register_hook(lambda gradient, name=name: seen.append((name, gradient.norm())))
        return module, optimizer, seen

    both(make_hooked, step, batch, breaks=True)
