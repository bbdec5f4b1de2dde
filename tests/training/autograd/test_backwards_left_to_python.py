"""Backwards within captured code that Python carries out, and what goes wrong there."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import framejit
from tests.training.autograd.steps import (
    BACKENDS,
    batch,
    both,
    contents,
    loss_of,
    perceptron,
    stepped,
    with_optimizer,
)

from twins import leaf, same


def test_a_second_backward():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        loss.backward()
        loss.backward()

    both(lambda: (perceptron(),), step, batch, breaks=True)


def test_a_backward_of_what_was_returned():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        loss.backward()
        return loss

    module = perceptron()
    for backend in BACKENDS:
        loss = framejit.optimize(step, backend=backend)(module, *batch())
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_what_was_written_before_the_backward():
    def step(w, x):
        made = (w * x).exp()
        loss = made.sum()
        made.mul_(2)
        loss.backward()

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


@pytest.mark.parametrize("make_loss", [lambda w, x: (x * 2).sum(), lambda w, x: w * x], ids=["constant", "many"])
def test_losses_without_gradients(make_loss):
    def step(w, x):
        make_loss(w, x).backward()

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


def test_hooks_on_nodes_of_autograd():
    def make():
        module = perceptron()
        node = torch.autograd.graph.get_gradient_edge(module[0].weight).node
        node.register_hook(lambda *gradients: seen.append(1))
        kept.append(node)
        return (module,)

    def step(module, x, y):
        loss_of(module, x, y).backward()
        return len(seen)

    seen, kept = [], []
    module, *given = *make(), *batch()
    for backend in BACKENDS:
        seen.clear()
        framejit.optimize(step, backend=backend)(module, *given)
        assert seen == [1]


def test_a_hook_that_is_removed_behind_the_backward():
    def step(w, x):
        handle = w.register_hook(lambda gradient: gradient * 2)
        (w * x).sum().backward()
        handle.remove()
        return w.grad, len(w._backward_hooks)

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


def test_numbers_of_hooks_are_the_programs_own():
    def step(w, other, x):
        (w * x).sum().backward()
        first = other.register_forward_hook(lambda *given: None)
        (w * x * 2).sum().backward()
        second = other.register_forward_hook(lambda *given: None)
        first.remove()
        second.remove()
        return second.id - first.id, len(other._forward_hooks)

    both(lambda: (leaf(3), nn.Linear(2, 2)), step, lambda: (leaf(3).detach(),))


def test_what_was_computed_before_the_call():
    def step(w, hidden, x):
        (hidden * w * x).sum().backward()
        return w.grad

    def draw():
        return (leaf(3) * 2).requires_grad_(), torch.randn(3, dtype=torch.float64)

    both(lambda: (leaf(3),), step, draw, breaks=True)


def test_an_exception_behind_a_backward():
    def step(module, x, y):
        loss_of(module, x, y).backward()
        raise ValueError(f"after {len([p for p in module.parameters() if p.grad is not None])} gradients")

    both(lambda: (perceptron(),), step, batch)


def test_a_class_out_of_range_is_met_before_anything_is_written():
    rows = iter(range(100))

    def draw():
        x, y = batch()
        return x, y + 7 * (next(rows) % 4 >= 2)

    both(with_optimizer(torch.optim.SGD, lr=0.1), stepped, draw, calls=2)


def test_other_backends_get_no_graphs_that_ask_for_gradients():
    def step(module, x, y):
        x = x.clone().requires_grad_()
        loss_of(module, x, y).backward()
        return x.grad

    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    module, other, given = perceptron(), perceptron(), batch()
    other.load_state_dict(module.state_dict())
    same(step(module, *given), framejit.optimize(step, backend=backend)(other, *given))
    called = {str(node.target) for gm in graphs for node in gm.graph.nodes if node.op != "placeholder"}
    assert graphs and not any("grad" in name for name in called), called
    same(contents(module), contents(other))


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no dtypes of gradients")
def test_gradients_of_another_dtype():
    def before(number, w):
        w.grad = None
        w.grad_dtype = torch.float32 if number >= 2 else torch.float64

    def step(w, x):
        (w * x).sum().backward()
        return w.grad.dtype, torch.autograd.grad((w * x).exp().sum(), w)

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), before=before, breaks=True)


def test_sparse_gradients():
    def make():
        module = nn.Embedding(10, 4, sparse=True)
        return module, torch.optim.SGD(module.parameters(), lr=0.1)

    def step(module, optimizer, places):
        optimizer.zero_grad()
        module(places).square().sum().backward()
        optimizer.step()
        return module.weight.detach().clone(), module.weight.grad.to_dense()

    module, optimizer = make()
    other, of_other = (made := copy.deepcopy((module, optimizer)))[0], made[1]
    compiled = framejit.optimize(step)
    for number in range(3):
        places = torch.arange(number, number + 3)
        same(step(module, optimizer, places), compiled(other, of_other, places))


def test_batches_of_other_sizes():
    rows = iter([rows for rows in (5, 6, 3, 9) * len(BACKENDS) for _ in range(2)])

    both(with_optimizer(torch.optim.SGD, lr=0.1), stepped, lambda: batch(next(rows)))
