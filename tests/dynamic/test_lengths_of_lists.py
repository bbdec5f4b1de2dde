"""Lists that grow from call to call, as those of all losses: that there are more items by now is no reason to compile
again where only their number is asked for."""

from __future__ import annotations

from collections import deque

import pytest
import torch

import framejit


def counted(items):
    def fn(n):
        x = torch.ones(3) * len(items)
        before = len(items)
        items.append(x)
        between = len(items)
        items.append(x + 1)
        return x, before, between, len(items), f"{len(items)}", [len(items)], len(items) / 2, bool(items)

    return fn


def every_fifth(items):
    told = []

    def fn(n):
        items.append(n)
        if len(items) % 5 == 0:
            told.append(len(items))
        return torch.ones(2) * n, [*told[-1:]]

    return fn


def until_full(items):
    def fn(n):
        x = torch.ones(2) * n
        if len(items) < 5:
            items.append(x)
            return None
        items.append(x * 2)
        return x + len(items)

    return fn


def emptied(items):
    def fn(n):
        items.append(torch.ones(2) * n)
        if len(items) == 4:
            total = torch.stack([*items]).sum()
            items.clear()
            return total, len(items)
        return torch.zeros(2) + len(items)

    return fn


def under_two_names(items):
    other = items

    def fn(n):
        before = len(items)
        other.append(n)
        return torch.ones(1) * before, len(items), len(other), not items

    return fn


def behind_a_break(items):
    def fn(n):
        items.append(torch.ones(1))
        count = len(items)
        print(end="")
        items.append(torch.zeros(1))
        return torch.ones(2) * count, len(items)

    return fn


def raising(items):
    def fn(n):
        items.append(torch.ones(1) * n)
        if n % 4 == 3:
            raise ValueError(len(items))
        return torch.ones(1) * len(items)

    return fn


def read_as_well(items):
    def fn(n):
        count = len(items)
        items.append(items[-1] + 1 if items else torch.ones(1))
        return items[-1] * 2, count, len(items), items[count]

    return fn


PROGRAMS = {
    "a number": (counted, 3), "every fifth": (every_fifth, 7), "until it is full": (until_full, 4),
    "emptied": (emptied, 6), "under two names": (under_two_names, 4), "behind a break": (behind_a_break, 4),
    "raising": (raising, 5), "items are read": (read_as_well, 16),
}


def outcomes(make, compile_fn, kind):
    items = kind()
    fn, found = compile_fn(make(items)), []
    for n in range(14):
        try:
            result = fn(n)
        except ValueError as e:
            result = repr(e)
        found.append(repr((result, items)))
    return fn, found


class Own(list):
    def __len__(self):
        return 7


@pytest.mark.parametrize("kind", [list, deque, Own])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_that_grow(name, kind):
    make, entries = PROGRAMS[name]
    if kind is Own and make is read_as_well:
        pytest.skip("its number of items is none of its places")
    _, expected = outcomes(make, lambda fn: fn, kind)
    fast, found = outcomes(make, lambda fn: framejit.optimize(fn, backend="eager"), kind)
    assert found == expected
    assert kind is not list or len(fast.entries) <= entries


def test_a_list_of_another_call():
    """What is left open of one list says nothing of items."""

    def fn(items, x):
        return sum(items, x) * len(items)

    fast = framejit.optimize(fn, backend="eager")
    for count in (0, 1, 2, 5, 1, 0, 3):
        items = [torch.ones(2) * i for i in range(count)]
        assert torch.equal(fn(items, torch.ones(2)), fast(items, torch.ones(2)))


def test_lists_of_layers_that_are_stamped_out():
    """Another number of items in each layer is no length that changes by itself, but one that layers may ask for."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.shift, self.factors = torch.nn.Parameter(torch.ones(3)), [2.0]

        def forward(self, x):
            for factor in self.factors:
                x = torch.tanh(x * factor) + self.shift
            return x + len(self.factors)

    layers = torch.nn.ModuleList(Layer() for _ in range(5))

    def fn(x):
        for layer in layers:
            x = layer(x)
        return x

    fast = framejit.optimize(fn, backend="eager")
    for count in (1, 2, 3, 1):
        for place, layer in enumerate(layers):
            layer.factors = [2.0] * (count + (place == 3))
            assert torch.equal(fn(torch.ones(3)), fast(torch.ones(3)))


class Buffer:
    def __init__(self):
        self.items, self.added = [], 0

    def add(self, item):
        self.items.append(item)
        self.added += 1

    def __len__(self):
        return len(self.items)


class Shrinking(Buffer):
    def __len__(self):
        return 3 - self.added


class Counted(Buffer):
    def __len__(self):
        return self.added * 2


@pytest.mark.parametrize("cls", [Buffer, Counted, Shrinking])
def test_lengths_that_a_class_tells(cls):
    def outcomes(wrap):
        buffer, found = cls(), []

        def fn(x):
            buffer.add(x)
            if buffer and len(buffer) < 3:
                return x * 2
            return x * len(buffer), len(buffer) / 2, f"{len(buffer)}", not buffer

        fn = wrap(fn)
        for n in range(8):
            try:
                found.append(repr(fn(torch.ones(2) * n)))
            except ValueError as e:
                found.append(str(e))
        return fn, found

    fast, found = outcomes(lambda fn: framejit.optimize(fn, backend="eager"))
    assert found == outcomes(lambda fn: fn)[1]
    assert len(fast.entries) <= 5
