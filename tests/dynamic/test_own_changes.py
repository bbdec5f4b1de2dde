"""What captured code itself changes from call to call is not assumed: counters and caches that grow are compiled
once."""

from __future__ import annotations

import copy

import pytest
import torch

import framejit
from framejit.capture import capture as capture_module

from comparison import assert_same

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


class Layer:
    def __init__(self, n):
        self.keys = torch.randn(1, 2, n, 8)


class Holder:
    """What the programs below change, in each kind of object that can hold it."""

    def __init__(self, n=5):
        self.steps, self.total, self.name, self.started = 3, 0.5, "a", False
        self.cache = torch.randn(n, 8)
        self.in_dict = {"cache": torch.randn(n, 8), "steps": 7}
        self.in_list = [torch.randn(n, 8), 11]
        self.layers = [Layer(n) for _ in range(3)]
        self.module = torch.nn.Module()
        self.module.register_buffer("cache", torch.randn(n, 8))
        self.module.steps = 2


def counter(x, h):
    h.steps += 1
    return x * h.steps


def running_total(x, h):
    h.total = h.total * 0.5 + 1
    return x + h.total


def counter_in_dict(x, h):
    h.in_dict["steps"] += 2
    return x - h.in_dict["steps"]


def counter_in_list(x, h):
    h.in_list[1] -= 1
    return x - h.in_list[1]


def counter_in_module(x, h):
    h.module.steps += 1
    return x / h.module.steps


def running_total_of_data(x, h):
    h.total = h.total + float(x.sum())
    return x * 2


def total_of_sizes(x, h):
    h.steps = h.steps + x.shape[0]
    return x * h.steps


def cache(x, h):
    h.cache = torch.cat([h.cache, x])
    return h.cache.sum(0)


def cache_in_dict(x, h):
    h.in_dict["cache"] = torch.cat([h.in_dict["cache"], x])
    return h.in_dict["cache"].amax(0)


def cache_in_list(x, h):
    h.in_list[0] = torch.cat([h.in_list[0], x, x])
    return h.in_list[0] @ x[0]


def cache_in_buffer(x, h):
    h.module.cache = torch.cat([h.module.cache, x])
    return h.module.cache.cumsum(0)[-1]


def cache_of_layers(x, h):
    for layer in h.layers:
        layer.keys = torch.cat([layer.keys, x[None, :, None].expand(1, 2, 1, 8)], 2)
        x = (x[:, None] @ layer.keys[0].transpose(-1, -2)).softmax(-1).sum(-1) * x
    return x


def shrinking(x, h):
    h.cache = h.cache[:-1]
    return h.cache.mean(0) + x


PROGRAMS = [
    counter, running_total, running_total_of_data, total_of_sizes, counter_in_dict, counter_in_list, counter_in_module,
    cache, cache_in_dict, cache_in_list, cache_in_buffer, cache_of_layers, shrinking,
]


def state(h):
    return (
        h.steps, h.total, h.name, h.started, h.cache, h.in_dict, h.in_list, [layer.keys for layer in h.layers],
        h.module.cache, h.module.steps,
    )


def run(program, calls=6, n=9, options=None, rows=2):
    """Entries after some calls, each compared with eager's."""
    torch.manual_seed(0)
    expected = Holder(n)
    got = copy.deepcopy(expected)
    fast = framejit.optimize(program, **(options or {}))
    for _ in range(calls):
        x = torch.randn(rows, 8)
        assert_same(fast(x, got), program(x, expected), **CLOSE)
        assert_same(state(got), state(expected), **CLOSE)
    return len(fast.entries)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_one_entry_serves_all_calls(program, backend):
    assert run(program, options={"backend": backend}) == 1


@pytest.mark.parametrize("program", [cache, cache_of_layers, shrinking], ids=lambda program: program.__name__)
def test_sizes_that_are_to_be_assumed_are(program):
    assert run(program, calls=3, options={"dynamic": False}) == 3


def test_sizes_are_assumed_where_the_option_says_so(monkeypatch):
    monkeypatch.setattr(framejit.config, "dynamic_after", 0)
    assert run(cache, calls=3) == 3


def test_a_cache_that_is_empty_or_has_one_row_is_compiled_for_itself_first():
    assert run(cache, calls=4, n=1, rows=1) == 2
    assert run(cache, calls=4, n=0, rows=1) <= 3


def test_inputs_that_grow_with_the_cache_are_open_too():
    def attend(x, mask, h):
        h.cache = torch.cat([h.cache, x])
        return (h.cache.sum(-1) + mask).softmax(-1)

    expected = Holder(9)
    got = copy.deepcopy(expected)
    fast = framejit.optimize(attend)
    for n in range(10, 15):
        x, mask = torch.randn(1, 8), torch.randn(n)
        assert_same(fast(x, mask, got), attend(x, mask, expected), **CLOSE)
    assert len(fast.entries) == 1


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_layers_of_one_length_are_taken_to_stay_so(backend):
    torch.manual_seed(0)
    expected = Holder(9)
    got = copy.deepcopy(expected)
    fast = framejit.optimize(cache_of_layers, backend=backend)

    def step():
        x = torch.randn(2, 8)
        assert_same(fast(x, got), cache_of_layers(x, expected), **CLOSE)
        assert_same(state(got), state(expected), **CLOSE)

    step()
    step()
    asked = [record.text for record in fast.entries[0].tag.records]
    for number in (1, 2):
        assert f"h.layers[0].keys.size(2) == h.layers[{number}].keys.size(2)" in asked
    for dropped in (1, 2, 3):  # and where they come apart, nothing is taken of them any more
        for h in (got, expected):
            h.layers[1].keys = h.layers[1].keys[:, :, dropped:].clone()
        step()
    assert len(fast.entries) == 2


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_equal_parts_of_a_list_with_open_sizes(backend):
    def joined(parts):
        return torch.cat(parts).cumsum(0) * parts[0].shape[0], [part * 2 for part in parts]

    fast = framejit.optimize(joined, dynamic=True, backend=backend)
    for lengths in ((3, 3, 3), (5, 5, 5), (5, 6, 5), (7, 8, 8), (2, 9, 3), (4, 4, 4)):
        parts = [torch.randn(n, 4) for n in lengths]
        assert_same(fast(parts), joined(parts), **CLOSE)
    assert len(fast.entries) == 2


class Empty:
    """A cache before the first call, as transformers has it."""

    def __init__(self, nothing):
        self.keys = self.values = nothing
        self.table = {"keys": nothing}


def fill(x, scale, cache):
    first = cache.keys is None
    cache.keys = x * scale if first else torch.cat([cache.keys, x])
    return (x @ cache.keys.T).softmax(-1) * torch.arange(cache.keys.shape[0])


def fill_what_is_empty(x, scale, cache):
    cache.keys = torch.cat([cache.keys, x * scale])
    cache.values = torch.cat([cache.values, x.clone()])
    return (x @ cache.keys.T).softmax(-1) @ cache.values


def fill_a_table(x, scale, cache):
    cache.table["keys"] = x * scale
    return x.softmax(0) + x.sum()


@pytest.mark.parametrize(
    ("program", "nothing"), [(fill, None), (fill_what_is_empty, torch.zeros(0, 8)), (fill_a_table, None)]
)
@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_cache_that_is_filled_leaves_the_length_of_what_fills_it_open(program, nothing, backend):
    fast = framejit.optimize(program, backend=backend)
    scale = torch.tensor(2.0)
    for n in (5, 9, 8, 2, 17, 5):
        x = torch.randn(n, 8)
        got, expected = Empty(nothing), Empty(nothing)
        assert_same(fast(x, scale, got), program(x, scale, expected), **CLOSE)
        assert_same((got.keys, got.values, got.table), (expected.keys, expected.values, expected.table), **CLOSE)
    assert len(fast.entries) == 1


def test_what_a_module_keeps_says_nothing_of_sizes():
    class Keeps(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = None

        def forward(self, x):
            if self.kept is None:
                self.kept = x * 2
            return x + self.kept

    model = Keeps()
    fast = framejit.optimize(model.forward)
    for n in (5, 9):
        model.kept = None
        x = torch.randn(n, 8)
        assert_same(fast(x), x * 3, **CLOSE)
    assert len(fast.entries) == 2


def test_a_number_that_decides_is_right_at_each_call():
    def every_third(x, h):
        h.steps += 1
        if h.steps % 3 == 0:
            return x * 2
        return x + h.steps

    assert run(every_third, calls=9) == 2


def test_a_table_made_anew_when_it_is_too_small():
    def table(x, h):
        n = x.shape[0]
        if n > h.steps:
            h.steps, h.cache = n, torch.ones(n, 8).cumsum(0)
        return x * h.cache[:n]

    torch.manual_seed(0)
    expected = Holder(9)
    got = copy.deepcopy(expected)
    fast = framejit.optimize(table)
    for n in (2, 4, 6, 3, 9, 5, 7, 12, 2):
        x = torch.randn(n, 8)
        assert_same(fast(x, got), table(x, expected))
        assert_same(state(got), state(expected), **CLOSE)
    assert len(fast.entries) <= 4


def test_what_is_set_to_the_same_value_or_another_kind_is_assumed():
    def assume(x, h):
        h.started, h.name, h.steps, h.total = True, "b", 3, 1
        return x * h.steps

    assert run(assume, calls=3) == 1


def test_a_change_that_is_taken_back_is_none():
    def put_back(x, h):
        h.steps += 1
        y = x * h.steps
        h.steps -= 1
        return y

    assert run(put_back, calls=3) == 1


def test_changes_before_and_behind_a_break():
    def around(x, h):
        h.steps += 1
        x = x * h.steps
        print(end="")
        h.cache = torch.cat([h.cache, x])
        return h.cache.sum(0)

    torch.manual_seed(0)
    expected = Holder(9)
    got = copy.deepcopy(expected)
    seen = []
    fast = framejit.optimize(around, backend=lambda module, inputs: seen.append(module) or module.forward)
    for _ in range(5):
        x = torch.randn(2, 8)
        assert_same(fast(x, got), around(x, expected), **CLOSE)
        assert_same(state(got), state(expected), **CLOSE)
    assert len(seen) == 2


def test_objects_are_looked_at_a_few_times_however_often_they_are_changed(monkeypatch):
    looked, plain = [], capture_module.changed_sizes
    monkeypatch.setattr(capture_module, "changed_sizes", lambda *given: looked.append(given) or plain(*given))

    def swap(x, a, b):
        for i in range(len(a)):
            a[i] = b[i] + 1
            b[i] = a[i] * 2
        return x + a[0]

    a, b = [*range(300)], [*range(300)]
    expected = swap(torch.ones(2), [*a], [*b])
    assert_same(framejit.optimize(swap)(torch.ones(2), a, b), expected)
    assert a[:3] == [1, 2, 3] and b[:3] == [2, 4, 6]
    assert 0 < len(looked) <= 4


def test_layers_with_a_counter_each():
    def count(x, layers):
        for layer in layers:
            layer["steps"] += 1
            x = x * layer["steps"]
        return x

    expected, got = ([{"steps": n} for n in range(40)] for _ in range(2))
    fast = framejit.optimize(count)
    for _ in range(4):
        x = torch.rand(3) / 100
        assert_same(fast(x, got), count(x, expected))
        assert got == expected
    assert len(fast.entries) <= 2


def test_a_number_that_has_to_be_assumed():
    """Lists are compared as a whole: that what one holds changes is no reason to capture again and again."""

    def fn(x, rows):
        least = min(rows)
        least[0] += 0.5
        return x * 2

    rows = [[1.0, 2.0], [3.0, 4.0]]
    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        compiled(torch.ones(2), rows)
    assert rows == [[2.0, 2.0], [3.0, 4.0]]
    assert all(report.state == "compiled" for report in framejit.status().functions if report.function.endswith("fn"))
