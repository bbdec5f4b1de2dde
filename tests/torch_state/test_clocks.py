"""Clocks are read by the graph, in their place among its operations, and show what they show in plain Python."""
from __future__ import annotations

import datetime
import random
import time
from unittest import mock

import pytest
import torch

import framejit

from support import ANY, Pair, of_kind, recorded


def alike(make, *calls, **expected):
    pair = Pair(make)
    for args in calls or ((torch.ones(3),), (torch.ones(3) * 2,), (torch.ones(3) * 3,)):
        pair.call(*args)
    pair.expect(**expected)


SECONDS = (time.time, time.perf_counter, time.monotonic, time.process_time, time.thread_time)
NANOSECONDS = (
    time.time_ns, time.perf_counter_ns, time.monotonic_ns, time.process_time_ns, time.thread_time_ns,
)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("clock", [*SECONDS, *NANOSECONDS])
def test_what_a_clock_shows(clock, backend):
    def fn(x):
        start = clock()
        y = x.sin() + 1
        middle = clock()
        return y * 2, [start, middle, middle - start, clock()]

    fast = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        before = clock()
        y, (start, middle, took, end) = fast(torch.ones(3))
        assert before <= start <= middle <= end <= clock()
        assert took == middle - start and type(took) is type(before)
        torch.testing.assert_close(y, (torch.ones(3).sin() + 1) * 2)
    if backend == "fuse":
        assert len(framejit.inspect(fast).graphs) == 1


@pytest.mark.parametrize("grad", [False, True])
def test_operations_stay_between_the_readings_that_they_stand_between(grad):
    def fn(x, y):
        start = time.perf_counter()
        product = x @ y
        middle = time.perf_counter()
        other = (x + 1).sin()
        end = time.perf_counter()
        return product, other, middle - start, end - middle

    def share(function):
        took = [function(x.clone().requires_grad_(grad), y)[2:] for _ in range(5)][2:]
        return min(product for product, _ in took) / min(other for _, other in took)

    x, y = torch.randn(400, 400), torch.randn(400, 4000)
    fast = framejit.optimize(fn, backend="fuse")
    assert share(fast) > 3 < share(fn)


def test_timers_that_programs_write():
    class Timer:
        def __init__(self, sink):
            self.sink = sink

        def __enter__(self):
            self.start = time.perf_counter()
            return self

        def __exit__(self, *exc):
            self.sink.append(time.perf_counter() - self.start)

    def make():
        sink = []

        def fn(x):
            with Timer(sink):
                y = x.exp()
            with Timer(sink) as timer:
                y = y.log1p()
            return y, timer.start > 0

        return fn, lambda: [type(took) for took in sink]

    alike(make, graphs=1, breaks=0)


def test_times_that_are_added_up_and_written():
    class Meter:
        def __init__(self):
            self.last, self.total, self.n, self.texts = time.time(), 0.0, 0, []

        def tick(self, n):
            now = time.time()
            self.total += now - self.last
            rate = n / max(now - self.last, 1e-9)
            self.texts.append(f"{rate:.1f}/s"[-2:])
            self.last, self.n = now, self.n + n

    def make():
        meter = Meter()

        def fn(x):
            y = x.pow(2)
            meter.tick(len(x))
            return y

        return fn, lambda: (meter.n, type(meter.total), meter.total >= 0, meter.texts)

    alike(make, breaks=ANY)


def test_text_of_nanoseconds():
    def fn(x):
        start = time.perf_counter_ns()
        y = x + 1
        took = time.perf_counter_ns() - start
        return y, f"{took / 1e12:.0f} ks", took < 1e12, took > 2.5, took // 10**12

    alike(lambda: fn, graphs=1, breaks=0)


def test_more_nanoseconds_than_a_float_holds_one_by_one():
    def fn(x):
        return x + 1, time.time_ns() / 1e9

    fast = framejit.optimize(fn)
    for _ in range(3):  # plain Python goes on behind the graph
        before = time.time()
        assert before - 1 < fast(torch.ones(2))[1] < time.time() + 1


def test_an_end_that_time_decides():
    def fn(x, budget):
        start, n = time.monotonic(), 0
        while n < 3:
            x, n = x.sin(), n + 1
            if time.monotonic() - start > budget:
                break
        return x, n

    alike(lambda: fn, (torch.ones(2), 1000.0), (torch.ones(2), -1.0), (torch.ones(2), 1000.0))


def test_a_branch_with_effects_on_time():
    def make():
        state = {"last": time.time() - 100, "reports": 0}

        def fn(x):
            y, now = x.sqrt(), time.time()
            if now - state["last"] > 50:
                state["last"], state["reports"] = now, state["reports"] + 1
            return y

        return fn, lambda: state["reports"]

    alike(make, breaks=ANY)


def test_times_in_tensors():
    def fn(x):
        start = time.monotonic()
        return x * 0 + (time.monotonic() - start) * 0, torch.tensor(start).dtype, torch.full((2,), start) * 0

    alike(lambda: fn)


def test_gradients_do_not_go_through_a_time():
    def fn(x):
        start = time.monotonic()
        y = x.sin()
        took = time.monotonic() - start
        return y, took >= 0

    def scaled(x):
        return (x * (time.monotonic() * 0 + 2)).sum()

    alike(lambda: fn, (torch.ones(3, requires_grad=True),), (torch.ones(3, requires_grad=True),), graphs=1, breaks=0)
    alike(lambda: scaled, (torch.ones(3, requires_grad=True),), (torch.ones(3, requires_grad=True),), breaks=1)


def test_a_gradient_of_a_gradient_beside_a_time():
    def fn(x):
        start = time.monotonic()
        y = (x.sin() * x).sum()
        return y, time.monotonic() - start

    fast, found = framejit.optimize(fn, backend="fuse"), []
    for function in (fn, fast):
        x = torch.linspace(0, 1, 3, dtype=torch.float64).requires_grad_()
        (first,) = torch.autograd.grad(function(x)[0], x, create_graph=True)
        found.append((first.detach(), *torch.autograd.grad(first.sum(), x)))
    torch.testing.assert_close(found[0], found[1])


def test_a_moment_that_is_kept_or_written():
    def make():
        log = []

        def fn(x):
            now = datetime.datetime.now()
            log.append({"at": now, "again": now})
            log.append((time.strftime("%Y"), now.strftime("%Y"), now.isoformat()[-1:] and f"{now:%Y}", str(now)))
            return x.cos()

        def state():
            return [
                (type(entry["at"]), entry["at"] is entry["again"], entry["at"] <= datetime.datetime.now())
                if isinstance(entry, dict) else [text[:4] for text in entry]
                for entry in log
            ]

        return fn, state

    alike(make, breaks=ANY)


def test_a_moment_that_is_computed_with():
    def fn(x):
        start = datetime.datetime.now()
        y = x + 1
        took = datetime.datetime.now() - start
        return y, took.total_seconds() >= 0, start.year > 2000, datetime.datetime.now(datetime.UTC).tzname()

    alike(lambda: fn)


def test_a_clock_that_the_program_puts_in_its_place():
    def fn(x):
        return x + 1, time.time()

    fast = framejit.optimize(fn)
    assert fast(torch.ones(2))[1] > 1
    with mock.patch("time.time", lambda: 0.5):
        assert fast(torch.ones(2))[1] == 0.5
    assert fast(torch.ones(2))[1] > 1


def test_arguments_that_a_clock_does_not_take():
    def fn(x):
        y = x + 1
        try:
            time.time(1)
        except TypeError as e:
            return y, str(e)
        return None

    alike(lambda: fn)


@pytest.mark.parametrize("draw", [time.perf_counter, random.random])
def test_graphs_that_are_launched_at_once_end_at_what_python_does(draw):
    """Else they could be launched no longer at once."""
    net, x = torch.nn.Linear(3, 3), torch.ones(2, 3)

    def fn(x):
        y = net(x).relu()
        number = draw()
        return net(y).sum(), number

    def graphs(**options):
        fast = framejit.optimize(fn, backend="fuse", **options)
        with recorded() as log:
            for _ in range(3):
                torch.testing.assert_close(fast(x)[0], fn(x)[0])
        return len(of_kind(log, "graph_break"))

    assert graphs() == 0 and graphs(mode="reduce-overhead") == 1
    assert graphs(mode="reduce-overhead", fullgraph=True) == 0
