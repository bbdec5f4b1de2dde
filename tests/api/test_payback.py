"""What compiling cost and when that has paid back, by the times that were measured."""

from __future__ import annotations

import json
import time

import pytest
import torch

import framejit
from framejit import events
from framejit.events import Payback

LARGE = torch.linspace(-3, 3, 200_000)


def chain(x):
    for _ in range(12):
        x = x * 1.5 - torch.relu(x)
    return x


def small(x):
    return x + 1


def payback(name):
    record, = (record for record in framejit.status().functions if record.function == name)
    return record.payback


def measured(fn, x):
    """The times that were measured of its one graph, in microseconds."""
    end = time.monotonic() + 60
    while not (told := events.events("perf")):
        fn(x)
        assert time.monotonic() < end
    return told[-1]


def test_nothing_is_said_before_both_ways_are_measured():
    framejit.optimize(chain)(LARGE)
    assert payback("chain") is None


def test_it_is_what_the_measured_times_give():
    fast = framejit.optimize(chain)
    perf = measured(fast, LARGE)
    assert perf.state == "compiled"
    said, record = payback("chain"), framejit.status().functions[0]
    assert said.seconds == record.seconds > 0
    assert said.calls == fast.hits + 1
    exact = said.seconds * 1e6 / (perf.eager_us - perf.compiled_us)
    assert said.after == pytest.approx(exact, abs=1.01)
    assert f"chain: {said}" in str(framejit.status())
    assert json.loads(json.dumps(framejit.status().to_dict()))[0]["payback"]["after"] == said.after


def test_two_parts_of_a_function_win_together():
    def broken(x):
        y = chain(x)
        print(end="")
        return chain(y)

    fast = framejit.optimize(broken)
    end = time.monotonic() + 60
    while len(events.events("perf")) < 2:
        fast(LARGE)
        assert time.monotonic() < end
    told = events.events("perf")
    said = payback(broken.__qualname__)
    won = sum(perf.eager_us - perf.compiled_us for perf in told if perf.state == "compiled")
    assert said.after == pytest.approx(said.seconds * 1e6 / won, rel=0.1, abs=1.01)  # of calls, whole ones


def test_what_is_not_measured_is_not_said():
    x = torch.randn(2_000_000, requires_grad=True)  # too large to be run besides with its backward
    fast = framejit.optimize(chain)
    for _ in range(12):
        fast(x).sum().backward()
    assert payback("chain") is None
    eager = framejit.optimize(small, backend="eager")
    for _ in range(12):
        eager(LARGE)
    assert payback("small") is None


def test_small_graphs_count_with_their_backward():
    x = torch.randn(1000, requires_grad=True)
    fast = framejit.optimize(chain)
    for _ in range(12):
        fast(x).sum().backward()
    (perf,), said = events.events("perf"), payback("chain")
    assert said.calls == 12
    won = perf.eager_us - perf.compiled_us if perf.state == "compiled" else 0
    assert (said.after is not None) == (won > 0)
    if won > 0:
        assert said.after == pytest.approx(said.seconds * 1e6 / won, abs=1.01)


def test_in_words():
    assert str(Payback(0.342, 40, 31)) == "0.34 s of compiling, paid back after 31 calls"
    assert str(Payback(0.342, 30, 31)) == "0.34 s of compiling, to be paid back after 31 calls, of which there were 30"
    assert str(Payback(0.342, 30, None)) == "0.34 s of compiling, which 30 calls win nothing for"
