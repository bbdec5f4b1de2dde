"""Gradients that captured code asks for go through layers that were stamped out as through those that were interpreted:
to the same leaves, of the same numbers, laid out the same."""
import copy

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.capture.alike.stamped_history import StampedHistory
from framejit.capture.graph.graph_builder import GraphBuilder
from tests.fuse.long_layers import instructions

DEPTH = 4
X = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)


@pytest.fixture
def one_node(monkeypatch):
    """For each layer that was stamped out, whether one node stands for its history."""
    found = []
    made = StampedHistory.made

    def noting(self, *given):
        result = made(self, *given)
        found.append(bool(result))
        return result

    monkeypatch.setattr(StampedHistory, "made", noting)
    return found


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = torch.nn.Linear(4, 4), torch.nn.LayerNorm(4)
        self.unused = torch.nn.Parameter(torch.rand(4))
        self.plain = torch.nn.Parameter(torch.rand(4), requires_grad=False)

    def forward(self, x, shared):
        return x + F.gelu(self.linear(self.norm(x))) * shared + self.plain + self.unused.detach() + instructions()


class Two(Layer):
    def forward(self, x, shared):
        made = super().forward(x, shared)
        return made, made.sin() * 0.5


class Apart(Layer):
    """Two results, to which different weights lead."""

    def forward(self, x, shared):
        return super().forward(x, shared), self.unused * 2


class View(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared).t().t()


class Passing(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared), x.view(4, 3).view(3, 4), x


class Within(Layer):
    def forward(self, x, shared):
        with torch.no_grad():
            factor = self.norm(x).sigmoid()
        with torch.enable_grad():
            return super().forward(x, shared) * factor


class Writing(Layer):
    def forward(self, x, shared):
        return super().forward(x, shared).mul_(shared).add_(1)


class Stack(torch.nn.Module):
    def __init__(self, make=Layer):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.layers = torch.nn.Linear(4, 4), torch.nn.ModuleList(make() for _ in range(DEPTH))
        self.shared = torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        x, extra = self.first(x), 0
        for layer in self.layers:
            found = layer(x, self.shared)
            if isinstance(found, tuple):
                x, *rest = found
                extra = extra + sum(each.sum() for each in rest)
            else:
                x = found
        return x, extra


def backward(model, x):
    result, extra = model(x)
    loss = (result * result).sum() + extra
    loss.backward()
    return loss


def strides(model):
    return [None if parameter.grad is None else parameter.grad.stride() for parameter in model.parameters()]


def same_steps(make, freeze=lambda model: None):
    models = [Stack(make).double() for _ in range(2)]
    for model in models:
        freeze(model)
    optimizers = [torch.optim.SGD(model.parameters(), 0.01, 0.9) for model in models]
    compiled = framejit.optimize(backward)
    for _ in range(2):
        torch.testing.assert_close(compiled(models[0], X), backward(models[1], X))
        torch.testing.assert_close(*([parameter.grad for parameter in model.parameters()] for model in models))
        assert strides(models[0]) == strides(models[1])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize("make", [Layer, Two, Apart, View, Passing, Within, Writing])
def test_steps(make):
    same_steps(make)


def test_one_node_stands_for_a_layer(one_node):
    same_steps(Layer)
    assert one_node and all(one_node)


@pytest.mark.parametrize("place", [0, DEPTH // 2, -1])
def test_weights_without_gradients(place):
    same_steps(Layer, lambda model: model.layers[place].linear.weight.requires_grad_(False))


@pytest.mark.parametrize("place", [0, DEPTH // 2, -1])
def test_gradients_of_what_is_in_between(place):
    def asked(model, x):
        x, found = model.first(x), []
        for layer in model.layers:
            x = layer(x, model.shared)
            found.append(x)
        return torch.autograd.grad(x.sum(), [found[place], model.shared, model.layers[place].linear.weight])

    model = Stack().double()
    compiled = framejit.optimize(asked)
    for _ in range(2):
        torch.testing.assert_close(compiled(model, X), asked(model, X))


def test_weights_that_nothing_leads_to():
    def asked(model, x):
        result, _ = model(x)
        return torch.autograd.grad(
            result.sum(), [layer.unused for layer in model.layers], allow_unused=True, materialize_grads=True
        )

    model = Stack().double()
    torch.testing.assert_close(framejit.optimize(asked)(model, X), asked(model, X))


def test_gradients_of_gradients(monkeypatch):
    def penalty(model, x):
        result, _ = model(x)
        (first,) = torch.autograd.grad(result.sin().sum(), x, create_graph=True)
        return torch.autograd.grad((first * first).sum(), [layer.linear.weight for layer in model.layers])

    needed = []
    stamp = GraphBuilder.stamp

    def noting(self, *given):
        needed.append(self.needs_histories)
        return stamp(self, *given)

    monkeypatch.setattr(GraphBuilder, "stamp", noting)
    model, x = Stack().double(), X.clone().requires_grad_()
    compiled = framejit.optimize(penalty, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(model, x), penalty(model, x))
    assert needed == [False] * (DEPTH - 1) + [True] * (DEPTH - 1)


def test_weights_that_are_written_between_two_passes():
    def twice(model, optimizer, x):
        losses = []
        for _ in range(2):
            optimizer.zero_grad()
            loss = model(x)[0].square().sum()
            loss.backward()
            optimizer.step()
            losses.append(loss)
        return losses

    models = [Stack().double() for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    compiled = framejit.optimize(twice)
    for _ in range(2):
        torch.testing.assert_close(compiled(models[0], optimizers[0], X), twice(models[1], optimizers[1], X))
        torch.testing.assert_close(*(list(model.parameters()) for model in models))


def test_a_backward_of_its_own_for_a_copy():
    model = Stack().double()
    compiled = framejit.optimize(copy.deepcopy(model))
    for _ in range(2):
        for net in (compiled, model):
            net.zero_grad()
            net(X)[0].sum().backward()
        torch.testing.assert_close(*([p.grad for p in net.parameters()] for net in (compiled, model)))
