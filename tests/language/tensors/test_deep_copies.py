"""`copy.deepcopy` of tensors, and of what holds tensors, is part of the graph."""
from __future__ import annotations

import copy

import pytest
import torch

import framejit

from support import ANY, check, check_state

X = torch.arange(12.0).view(3, 4)


def test_a_copy_that_is_written_into():
    def fn(x):
        y = copy.deepcopy(x)
        y += 1
        x.mul_(2)
        return x + y, y

    check(fn, X, changed=[(X.t(),), (X.double(),), (X.int(),)])


def test_a_copy_of_what_is_made_inside():
    def fn(x):
        z = x.sin()
        y = copy.deepcopy(z)
        z += 1
        return y, z, copy.deepcopy(z.t()).stride()

    check(fn, X)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_copies_in_the_order_of_writes(backend):
    def fn(x, steps):
        kept = []
        for _ in range(steps):
            kept.append(copy.deepcopy(x))
            x.add_(1)
        return kept

    def twice(function):
        x = X.clone()
        return function(x, 3), function(x, 3), x

    for a, b in zip(twice(fn)[0], twice(framejit.optimize(fn, backend=backend))[0]):
        assert torch.equal(a, b)


def test_containers_and_objects():
    class State:
        def __init__(self):
            self.h, self.items = torch.zeros(4), [1]

    def make():
        state, bank = State(), {"a": [torch.ones(4), torch.zeros(4)], "n": 0}

        def fn(x):
            old, seen = copy.deepcopy(state), copy.deepcopy(bank)
            old.h += x[0]
            old.items.append(2)
            state.h = old.h * 2
            bank["a"][0] += x.sum()
            bank["n"] += 1
            return old.h + len(old.items), torch.stack(seen["a"]), bank["a"], seen["a"][0] is bank["a"][0]

        return fn, lambda: (state.h, state.items, bank)

    check_state(make, (X,), (X + 1,), (X,))


def test_one_tensor_in_several_places():
    def fn(x):
        first, (second, third) = copy.deepcopy([x, (x, x + 1)])
        first += 1
        return first is second, second, third

    check(fn, X)


def test_the_state_of_a_module():
    def make():
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.fill_(0.25)

        def fn(x):
            with torch.no_grad():
                best = copy.deepcopy(module.state_dict())
                module[0].weight.mul_(0.5)
                y = module(x)
            return y, best, type(best), best["0.weight"] is module[0].weight

        return fn, lambda: dict(module.state_dict())

    check_state(make, (X,), (X + 1,))


def test_parameters():
    def make():
        weight = torch.nn.Parameter(torch.ones(4))

        def fn(x):
            own = copy.deepcopy(weight)
            return (x * own.detach()).sum(), own, type(own), own.requires_grad, own.grad

        return fn, lambda: weight

    check_state(make, (X,), (X + 1,))


def shared(x):
    a, b = copy.deepcopy([x, x[0]])
    a += 1
    return a, b


def part(x):
    y = copy.deepcopy(x[1])
    return y, y.storage_offset()


def history(x):
    try:
        return copy.deepcopy(x.clone().requires_grad_() * 2)
    except RuntimeError as e:
        return str(e)


def leaf(x):
    return copy.deepcopy(x.requires_grad_()) * 2


def wide(x):
    return copy.deepcopy(x[:1].expand(3, 4)).stride()


def conjugated(x):
    return copy.deepcopy(x.to(torch.complex64).conj()).is_conj()


@pytest.mark.parametrize("fn", [shared, part, history, leaf, wide, conjugated])
def test_copies_that_only_python_makes(fn):
    check(fn, X, graphs=None, breaks=ANY, calls=1)


def test_arguments_that_are_more_than_their_numbers():
    def fn(x):
        y = copy.deepcopy(x)
        return y, y.storage_offset(), y.untyped_storage().nbytes(), y.grad, vars(y)

    fast = framejit.optimize(fn)
    with_gradient, with_attribute = X.clone(), X.clone()
    with_gradient.grad, with_attribute.note = torch.ones(3, 4), [1]
    given = [X, torch.arange(24.0).view(6, 4)[:3], torch.arange(24.0).view(6, 4)[3:], with_gradient, with_attribute, X]
    for x in given:
        for expected, got in zip(fn(x), fast(x)):
            assert torch.equal(expected, got) if isinstance(expected, torch.Tensor) else expected == got


def test_arguments_that_share_memory():
    def fn(x, y):
        a, b = copy.deepcopy((x, y))
        a += 1
        return a, b

    fast = framejit.optimize(fn)
    memory = X.clone()
    for given in ((X, X + 1), (memory, memory), (memory, memory.view(3, 4)), (memory, memory[0]), (X, X + 1)):
        for expected, got in zip(fn(*given), fast(*given)):
            assert torch.equal(expected, got)
