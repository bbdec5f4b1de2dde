"""`sum`, `max` and `min` of lists of numbers that grow from call to call, as those of all losses."""

from __future__ import annotations

import math

import pytest
import torch

import framejit


def mean(history):
    def fn(x):
        history.append((x * 2).sum().item())
        return x + 1, sum(history) / len(history)

    return fn


def extremes(history):
    def fn(x):
        history.append(x.sum().item())
        return x * max(history), min(history)

    return fn


def before_it_grows(history):
    def fn(x):
        total = sum(history)
        history.append(x.sum().item() / 3)
        return x + total, total

    return fn


def several(history):
    def fn(x):
        history.append(x.sum().item() / 3)
        history.append(0.1)
        history.append(x.mean().item() * 0.7)
        return x, sum(history), max(history), max(history, key=lambda v: -v), sum(history, 5), sum(history, 0.5)

    return fn


def best_so_far(history):
    def fn(x):
        loss = x.sum().item()
        better = not history or loss > max(history)
        history.append(loss)
        return x + 1, better

    return fn


def of_ints(history):
    def fn(x):
        history.append(len(history))
        return x + sum(history), sum(history), max(history), min(history)

    return fn


def of_both(history):
    def fn(x):
        history.append(2 if len(history) % 3 == 1 else 0.1)
        return x, sum(history), max(history), min(history)

    return fn


def of_strange_numbers(history):
    def fn(x):
        history.append([0.0, -0.0, 1.5, math.inf, math.nan, -math.inf][len(history) % 6])
        return x, sum(history), max(history), min(history)

    return fn


def ending_in_text(history):
    def fn(x):
        history.append(1.5 if len(history) < 6 else "text")
        return x, sum(history)

    return fn


def of_nothing(history):
    def fn(x):
        if len(history) > 5:
            history.clear()
        elif x[0] < 0:
            return x
        history.append(1.0)
        history.pop()
        history.append(2.0) if len(history) < 4 else history.clear()
        return x, sum(history), max(history)

    return fn


PROGRAMS = {
    "mean": (mean, 4), "extremes": (extremes, 4), "before it grows": (before_it_grows, 3), "several": (several, 3),
    "best so far": (best_so_far, 3), "of ints": (of_ints, 4), "of both": (of_both, 99),
    "of strange numbers": (of_strange_numbers, 99), "ending in text": (ending_in_text, 99),
    "of nothing": (of_nothing, 99),
}


class Own(list):
    def __iter__(self):
        return iter([1.0, 2.0])


def outcomes(make, compile_fn, kind, calls=14):
    history = kind()
    fn, found = compile_fn(make(history)), []
    for n in range(calls):
        try:
            result = fn(torch.ones(2) * (n * 7 % 5) / 3)
        except (TypeError, ValueError) as e:
            result = repr(e)
        found.append(repr((result, history)))
    return fn, found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("kind", [list, Own])
@pytest.mark.parametrize("name", PROGRAMS)
def test_lists_that_grow(name, kind, backend):
    make, entries = PROGRAMS[name]
    _, expected = outcomes(make, lambda fn: fn, kind)
    fast, found = outcomes(make, lambda fn: framejit.optimize(fn, backend=backend), kind)
    assert found == expected
    rounds_once = sum([1.0, 1e100, 1.0, -1e100]) == 2.0  # from CPython 3.12 on: what was read last has to be known
    assert kind is not list or len(fast.entries) <= entries + rounds_once


def test_items_that_others_replace():
    def run(compile_fn):
        history, found = [], []

        @compile_fn
        def fn(x):
            history.append(x.sum().item())
            return sum(history), max(history)

        for n, others in enumerate([0.5, 0.5, 0.5, 1, True, 2**70, 0.5, None, 2.5, 1e308]):
            history[:] = [v for v in history if v is not None]
            if n > 3:
                history[1] = others
            try:
                found.append(repr((fn(torch.ones(2) * n), history)))
            except TypeError as e:
                found.append(repr(e))
        return found

    assert run(lambda fn: framejit.optimize(fn, backend="eager")) == run(lambda fn: fn)
