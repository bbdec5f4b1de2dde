"""Dicts that get other keys from call to call, as the logs of a training: `logs[step] = loss.item()`. What keys they
have is no reason to compile again where captured code writes items, or asks for one key."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict

import pytest
import torch

import framejit
from framejit.values.containers import hashing


class Counter:
    def __init__(self):
        self.step = 0


def written(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = (x * 2).sum().item()
        count.step += 1
        return x + 1

    return fn


def under_text(logs):
    count = Counter()

    def fn(x):
        count.step += 1
        logs[f"step {count.step}"] = x.sum().item()
        logs["latest"] = count.step
        return x + count.step

    return fn


def overwritten(logs):
    """Keys that are there already keep their places, and the object that is the key."""
    count = Counter()

    def fn(x):
        logs[count.step % 5] = x.sum().item()
        logs[True] = count.step
        logs[2.0] = "two"
        count.step += 1
        return x * 2

    return fn


def twice_in_a_call(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = 1
        logs[count.step + 1] = x.sum().item()
        first = logs[count.step]
        logs[count.step] = 2
        count.step += 1
        return x + first, logs[count.step - 1]

    return fn


def asked_whether_new(logs):
    count = Counter()

    def fn(x):
        step = count.step // 2
        count.step += 1
        if step in logs:
            return x - 1, len(logs)
        before = len(logs)
        logs[step] = x.sum().item()
        return x + 1, before, len(logs), step in logs, bool(logs)

    return fn


def with_default(logs):
    count = Counter()

    def fn(x):
        count.step += 1
        first = logs.get(count.step, 7)
        given = logs.setdefault(count.step, count.step * 2)
        best = logs.get("best", 0)
        logs["best"] = best + 1
        return x + given, first, logs.get("none"), best

    return fn


def missing(logs):
    count = Counter()

    def fn(x):
        count.step += 1
        logs[count.step] = x.sum().item()
        return x, logs[count.step + 100]

    return fn


def caught(logs):
    count = Counter()

    def fn(x):
        count.step += 1
        try:
            value = logs[count.step // 3]
        except KeyError as e:
            value = e.args[0]
            logs[count.step // 3] = x.sum().item()
        return x * 3, value

    return fn


def all_items(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = count.step * 2
        count.step += 1
        return x * 2, list(logs), sum(logs.values()), max(logs)

    return fn


def taken_out(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = x.sum().item()
        count.step += 1
        if len(logs) > 3:
            del logs[next(iter(logs))]
        return x * 2

    return fn


def behind_a_break(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = x.sum().item()
        print(end="")
        logs[count.step, "other"] = 1
        count.step += 1
        logs[count.step] = None
        return x * 2, len(logs)

    return fn


def under_read_numbers(logs):
    def fn(x):
        logs[int(x.sum())] = x.mean().item()
        return x * 2

    return fn


def of_lists(logs):
    count = Counter()

    def fn(x):
        count.step += 1
        logs.setdefault(count.step // 2, []).append(x.sum().item())
        return x * 2

    return fn


def of_tensors(logs):
    count = Counter()

    def fn(x):
        logs[count.step] = x * 2
        count.step += 1
        return logs[count.step - 1].sum()

    return fn


PROGRAMS = {
    "written": (written, 2), "under text": (under_text, 2), "overwritten": (overwritten, 2),
    "twice in a call": (twice_in_a_call, 2), "asked whether new": (asked_whether_new, 5),
    "with default": (with_default, 3), "missing": (missing, 2), "caught": (caught, 99),
    "all items": (all_items, 99), "taken out": (taken_out, 99), "behind a break": (behind_a_break, 99),
    "under read numbers": (under_read_numbers, 2), "of lists": (of_lists, 99), "of tensors": (of_tensors, 2),
}


class Own(dict):
    def __setitem__(self, key, value):
        super().__setitem__("written", len(self))
        super().__setitem__(key, value)


KINDS = {
    "dict": dict, "defaultdict": lambda: defaultdict(int), "without factory": defaultdict, "OrderedDict": OrderedDict,
    "own": Own,
}


def outcomes(make, compile_fn, kind, calls=12):
    logs = kind()
    fn, found = compile_fn(make(logs)), []
    for n in range(calls):
        if n == 8:  # others write, too
            logs[40] = logs[True] = 3
        try:
            result = fn(torch.ones(2) * n)
        except (KeyError, TypeError) as e:
            result = repr(e)
        found.append(repr((result, logs)))
    return fn, found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_dicts_with_other_keys(name, kind, backend):
    make, entries = PROGRAMS[name]
    _, expected = outcomes(make, lambda fn: fn, KINDS[kind])
    fast, found = outcomes(make, lambda fn: framejit.optimize(fn, backend=backend), KINDS[kind])
    assert found == expected
    assert kind != "dict" or len(fast.entries) <= entries


class Same:
    """Compares itself, and has the hash of a number."""

    def __init__(self, number):
        self.number, self.asked = number, 0

    def __hash__(self):
        return hash(self.number)

    def __eq__(self, other):
        self.asked += 1
        return isinstance(other, int) and other == self.number


def test_keys_that_compare_themselves_are_asked_as_often():
    def run(compile_fn):
        key = Same(7)
        logs, count = {}, Counter()

        @compile_fn
        def fn(x):
            logs[count.step] = x.sum().item()
            count.step += 1
            return x + 1

        for n in range(10):
            if n == 5:
                logs[key] = "own"
            fn(torch.ones(2) * n)
        return key.asked, [k for k in logs if k is not key], list(logs.values())

    assert run(lambda fn: framejit.optimize(fn, backend="eager")) == run(lambda fn: fn)


def test_nan_is_a_new_key_each_time():
    def run(compile_fn):
        logs, count = {}, Counter()

        @compile_fn
        def fn(x):
            logs[count.step] = 1
            logs[math.nan] = 2
            logs[float("nan")] = 3
            count.step += 1
            return x + 1

        for n in range(5):
            fn(torch.ones(2) * n)
        return repr(logs)

    assert run(lambda fn: framejit.optimize(fn, backend="eager")) == run(lambda fn: fn)


def test_two_names_of_one_dict():
    def run(compile_fn):
        logs, count = {}, Counter()
        found = []

        def step(x, first, second):
            first[count.step] = x.sum().item()
            second[count.step] = x.mean().item()
            count.step += 1
            return x + len(first), first.get(count.step - 1)

        fast = compile_fn(step)
        for n in range(8):
            other = {} if n % 3 == 2 else logs
            found.append(repr((fast(torch.ones(2) * n, logs, other), logs, other)))
        return found

    assert run(lambda fn: framejit.optimize(fn, backend="eager")) == run(lambda fn: fn)


def test_numbers_of_other_types():
    """A key that was an int and is a float, a bool or text then."""

    def run(compile_fn):
        logs, found = {}, []

        @compile_fn
        def fn(x, key):
            logs[key] = x.sum().item()
            return x + 1, key in logs

        for n, key in enumerate([1, 2, 3, 4, 5.0, 5, True, 1, "a", "b", None, 2**70, -3, 2.5, 3.0, 6, 7]):
            found.append(repr((fn(torch.ones(2) * n, key), logs)))
        return found

    assert run(lambda fn: framejit.optimize(fn, backend="eager")) == run(lambda fn: fn)


def made_here(x, n):
    made = {n: x + 1, "a": x}
    made[n + 1] = made[n] * 2
    return made, n in made, n + 2 in made, made.get(n + 3), list(made)


def beside_plain_numbers(x, n):
    made = {n: x + 1}
    found = 5 in made, made.get(6.0), 7 in made
    made[8] = x - 1
    made[n] = x * 3
    return made, found, len(made)


def taken_out(x, n):
    made = OrderedDict()
    made[n] = x
    made[n + 1] = x + 1
    made.move_to_end(n)
    first = made.popitem(last=False)
    del made[n]
    return first, made, made.pop(n, None)


def compared(x, n):
    one, other = {n: 1, n + 1: 2}, {n + 1: 2, n: 1}
    keys = one.keys() == other.keys(), one.keys() & {5, 6}, {5, 7} & one.keys(), {8, 9} - one.keys(), one.keys() ^ {4}
    pairs = one.items() == {(5, 1), (6, 2)}, one.items() & {(8, 1)}
    return x + 1, one == other, one == {5: 1, 6: 2}, {6: 1} != {n: 1}, keys, pairs, one.keys() <= {5, 6}


def merged(x, n):
    one = {n: x}
    one.update({5: x + 1, n + 1: x + 2})
    return one | {6: x + 3}, {**one, 7: x}, sorted(one), max(one), set(one), {key + 1: v for key, v in one.items()}


def counted(x, n):
    made = defaultdict(list)
    for k in (n, 5, n + 1, 6, n):
        made[k].append(k)
    return x + 1, made, repr(made)


@pytest.mark.parametrize("fn", [made_here, beside_plain_numbers, taken_out, compared, merged, counted])
def test_keys_of_dicts_made_here_that_change(fn):
    fast = framejit.optimize(fn, backend="eager")
    for n in (1, 2, 3, 5, 4, 6, 7, 8, 9, 0, -1, 20, 5):
        assert repr(fast(torch.ones(2), n)) == repr(fn(torch.ones(2), n)), n


def test_dicts_made_here_with_other_keys_take_no_entries():
    fast = framejit.optimize(made_here, backend="eager")
    for n in range(20, 40):
        fast(torch.ones(2), n)
    assert len(fast.entries) <= 3


def test_looking_up_a_key_does_not_go_through_all(monkeypatch):
    asked, is_open = [], hashing._is_open
    monkeypatch.setattr(hashing, "_is_open", lambda key: asked.append(key) or is_open(key))

    def fn(x):
        made = {k: k for k in range(300)}
        return x + sum(made[k] for k in range(300))

    assert torch.equal(framejit.optimize(fn, backend="eager")(torch.ones(2)), fn(torch.ones(2)))
    assert len(asked) < 3000
