"""Layers that each have a hook, as libraries put one on every layer to collect its results, are stamped out; whatever
else is asked of a hook is noticed."""

import warnings

import pytest
import torch

import framejit
from tests.capture.interpreted_layers import same_as_interpreted

from comparison import assert_same
from support import CountingBackend

DEPTH = 6
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        total = 0
        for number in range(12):
            total += number * 2
        return self.linear(x).sin() + total * 1e-3


class Collector:
    held = None


COLLECTOR = Collector()


def collecting(key, scale=1.0):
    """A hook with cells of its own."""

    def hook(module, args, output):
        held = COLLECTOR.held
        if held is None or key not in held:
            return None
        if len(held[key]) == 0:
            held[key].append(args[0])
        held[key].append(output * scale)
        return None

    return hook


def scaling(module, args, output):
    return output * 0.5


def first_argument(module, args):
    return (args[0] + 1,)


def with_kwargs(module, args, kwargs, output):
    return output + len(kwargs)


class Model(torch.nn.Module):
    def __init__(self, put=lambda layer: layer.register_forward_hook(collecting("states"))):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer() for _ in range(DEPTH))
        self.start = torch.nn.Parameter(torch.tensor(1.5))
        self.handles = [put(layer) for layer in self.layers]

    def forward(self, x):
        x, COLLECTOR.held = x * self.start, {"states": []}
        for layer in self.layers:
            x = layer(x)
        found, COLLECTOR.held = COLLECTOR.held, None
        return x, *found["states"]


PUT = {
    "forward": lambda layer: layer.register_forward_hook(scaling),
    "before": lambda layer: layer.register_forward_pre_hook(first_argument),
    "of its own": lambda layer: layer.register_forward_hook(collecting("states")),
    "lambda": lambda layer: layer.register_forward_hook(lambda module, args, output: output.cos()),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("put", PUT)
def test_layers_with_a_hook_each(stamped, put, grad):
    model, backend = Model(PUT[put]), CountingBackend()
    fast = framejit.optimize(model, backend=backend)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            assert_same(fast(X), model(X))
    # what the first one is given is collected, too, so that it goes another way
    assert stamped[0] == DEPTH - 1 - (put == "of its own") and len(backend.graphs) == 1


@pytest.mark.parametrize("put", ["of its own", "lambda"])  # the interpreter guards that one function is one for all
def test_they_are_those_of_the_interpreter(monkeypatch, put):
    same_as_interpreted(monkeypatch, lambda: Model(PUT[put]), X)


CHANGES = {
    "removed": lambda model, layer, handle: handle.remove(),
    "another one besides": lambda model, layer, handle: layer.register_forward_hook(scaling),
    "another one before": lambda model, layer, handle: layer.register_forward_hook(scaling, prepend=True),
    "a hook of arguments": lambda model, layer, handle: layer.register_forward_pre_hook(first_argument),
    "another function": lambda model, layer, handle: (handle.remove(), layer.register_forward_hook(scaling)),
    "other cells": lambda model, layer, handle: (
        handle.remove(), layer.register_forward_hook(collecting("states", 2.0))
    ),
    "with kwargs": lambda model, layer, handle: (
        handle.remove(), layer.register_forward_hook(with_kwargs, with_kwargs=True)
    ),
    "always called": lambda model, layer, handle: (
        handle.remove(), layer.register_forward_hook(scaling, always_call=True)
    ),
    "in its place": lambda model, layer, handle: layer._forward_hooks.update({handle.id: scaling}),
}


@pytest.mark.parametrize("where", [0, DEPTH // 2, DEPTH - 1])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_one_hook_is_noticed(change, where):
    model = Model()
    fast = framejit.optimize(model, backend=CountingBackend())
    assert_same(fast(X), model(X))
    CHANGES[change](model, model.layers[where], model.handles[where])
    for _ in range(2):
        assert_same(fast(X), model(X))
    other = Model()
    CHANGES[change](other, other.layers[where], other.handles[where])
    assert_same(framejit.optimize(other, backend=CountingBackend())(X), other(X))


def test_the_number_of_a_handle_is_not_looked_at():
    model, backend = Model(), CountingBackend()
    fast = framejit.optimize(model, backend=backend)
    hook = next(iter(model.layers[2]._forward_hooks.values()))
    for _ in range(3):
        assert_same(fast(X), model(X))
        model.handles[2].remove()
        model.handles[2] = model.layers[2].register_forward_hook(hook)
    assert len(backend.graphs) == 1


def test_tables_that_the_program_asks():
    """Numbers, order, and what else a dict tells."""
    layer = Layer()
    handle = layer.register_forward_hook(scaling)

    def program(x):
        hooks = layer._forward_hooks
        out = layer(x)
        known = handle.id in hooks, -1 in hooks, len(hooks), list(hooks), dict(hooks) == {handle.id: scaling}
        called = [hook.__name__ for number, hook in hooks.items() if number >= 0]
        return out, known, called, hooks.get(handle.id) is scaling, [*hooks.values()][0] is scaling

    fast = framejit.optimize(program, backend="eager")
    for _ in range(2):
        for _ in range(2):
            assert_same(fast(X), program(X))
        handle.remove()
        handle = layer.register_forward_hook(scaling)


def test_hooks_registered_and_removed_in_captured_code():
    layer = Layer()
    layer.register_forward_hook(scaling)

    def program(x):
        first = layer(x)
        handle = layer.register_forward_hook(scaling)
        second = layer(x)
        handle.remove()
        return first, second, layer(x), len(layer._forward_hooks)

    fast = framejit.optimize(program, backend="eager")
    for _ in range(3):
        assert_same(fast(X), program(X))


def test_a_hook_that_removes_itself():
    def put(layer):
        def once(module, args, output):
            handle.remove()
            return output * 2

        handle = layer.register_forward_hook(once)
        return handle

    model, other = Model(put), Model(put)
    fast = framejit.optimize(model, backend="eager")
    for _ in range(3):
        assert_same(fast(X), other(X))


def test_a_graph_break_in_a_hook():
    def noisy(module, args, output):
        warnings.warn(f"at {output.sum() > 0}", stacklevel=1)
        return output + 1

    model = Model(lambda layer: layer.register_forward_hook(noisy))
    fast = framejit.optimize(model, backend="eager")

    def told(function):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            return function(X), [str(warning.message) for warning in found]

    for _ in range(2):
        assert_same(told(fast), told(model))
