"""Selectors: every call gives the right result exactly once, and the quicker way is what remains."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import pytest
import torch
from fake_cuda import fake_driver  # noqa: F401  (a fixture)

from framejit import _native as native
from framejit._native import Selector

LONG = 0.002  # seconds: well above what a clock or a busy machine adds to the quick way's best time


class Way:
    """One of the two ways: counts its calls, and may take long or raise."""

    def __init__(self, name: str, seconds: float = 0.0) -> None:
        self.name, self.seconds, self.calls = name, seconds, 0
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        if self.error is not None:
            raise self.error
        if self.seconds:
            time.sleep(self.seconds)
        return self.name, args, kwargs


def ways(compiled_seconds: float, eager_seconds: float) -> tuple[Way, Way]:
    return Way("compiled", compiled_seconds), Way("eager", eager_seconds)


@pytest.mark.parametrize("cuda", [False, True])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_pure_selector_runs_eager_aside_and_gives_the_compiled_result(samples, cuda):
    # one sample may be all: apart by more than a busy machine adds to a sleep, and less than what ends the measuring
    compiled, eager = ways(5 * LONG, 12 * LONG)
    selector = Selector(compiled, eager, pure=True, cuda=cuda, samples=samples)
    for number in range(samples + 5):
        assert selector.state == ("measuring" if number <= samples else "compiled")
        assert selector(number, key=number) == ("compiled", (number,), {"key": number})
        assert eager.calls == min(number, samples)
        assert compiled.calls == number + 1


def test_a_pure_selector_settles_on_eager_where_that_is_quicker():
    compiled, eager = ways(LONG, 0)
    selector = Selector(compiled, eager, pure=True, cuda=False)
    results = [selector()[0] for _ in range(8)]
    assert results == ["compiled"] * 4 + ["eager"] * 4
    assert selector.state == "eager" and compiled.calls == 4
    assert selector.eager_ns < LONG * 1e9 <= selector.compiled_ns


def test_a_selector_with_side_effects_runs_nothing_twice():
    for compiled, eager in (ways(LONG, 2 * LONG), ways(2 * LONG, LONG)):
        quicker = min(compiled, eager, key=lambda way: way.seconds).name
        selector = Selector(compiled, eager, pure=False, cuda=False)
        results = [selector()[0] for _ in range(10)]
        assert results == ["compiled"] + ["compiled", "eager"] * 3 + [quicker] * 3
        assert compiled.calls + eager.calls == 10


def test_what_surely_takes_longer_is_not_run():
    compiled, eager = ways(LONG / 10, LONG * 10)
    told = []
    selector = Selector(compiled, eager, pure=True, cuda=False, on_decision=told.append, least_eager_ns=int(LONG * 5e8))
    assert [selector(k)[0] for k in range(8)] == ["compiled"] * 8
    assert (selector.state, eager.calls, compiled.calls) == ("compiled", 0, 8)
    assert selector.eager_is_least and selector.eager_ns == LONG * 5e8 > selector.compiled_ns > 0
    assert told == [selector]


def test_what_may_be_quicker_is_run():
    compiled, eager = ways(LONG, 0)
    selector = Selector(compiled, eager, pure=True, cuda=False, least_eager_ns=int(LONG * 5e8))
    results = [selector()[0] for _ in range(9)]
    assert results == ["compiled"] * 5 + ["eager"] * 4
    assert not selector.eager_is_least and selector.eager_ns < LONG * 5e8


def test_a_probe_that_raises_is_none():
    compiled, eager = ways(0, LONG)
    selector = Selector(compiled, eager, pure=True, cuda=False, least_eager_ns=int(LONG * 5e8))
    selector()
    compiled.error = ValueError("as asked")
    with pytest.raises(ValueError, match="as asked"):
        selector()
    compiled.error = None
    assert [selector()[0] for _ in range(3)] == ["compiled"] * 3
    assert selector.eager_is_least and eager.calls == 0


@pytest.mark.parametrize("pure", [True, False])
def test_eager_is_not_run_before_the_compiled_way_has_run_for_a_while(pure):
    compiled, eager = ways(LONG, 3 * LONG)
    selector = Selector(compiled, eager, pure=pure, cuda=False, wait_ns=int(LONG * 4e9))
    while not eager.calls:
        assert selector.state == "measuring"
        selector()
    assert 4 <= compiled.calls <= 6  # one of them to warm up, and one that is measured
    for _ in range(6):
        selector()
    assert selector.state == "compiled" and eager.calls == 3


@pytest.mark.parametrize("pure", [True, False])
def test_what_takes_many_times_as_long_is_run_once(pure):
    compiled, eager = ways(LONG / 10, LONG * 10)
    selector = Selector(compiled, eager, pure=pure, cuda=False)
    results = [selector()[0] for _ in range(8)]
    assert results == ["compiled"] * 8 if pure else ["compiled"] * 2 + ["eager"] + ["compiled"] * 5
    assert selector.state == "compiled" and eager.calls == 1


def test_what_takes_many_times_as_long_under_a_margin_is_measured_on():
    compiled, eager = ways(LONG, LONG * 6)
    selector = Selector(compiled, eager, pure=True, cuda=False, margin=4.0)
    for _ in range(8):
        selector()
    assert selector.state == "compiled" and eager.calls == 3


def test_compiled_stays_where_neither_is_clearly_quicker():
    selector = Selector(Way("compiled", LONG), Way("eager", LONG), pure=True, cuda=False, margin=0.5)
    for _ in range(5):
        selector()
    assert selector.state == "compiled"


def test_the_margin_asks_more_of_the_compiled_way():
    selector = Selector(Way("compiled", LONG), Way("eager", 2 * LONG), pure=True, cuda=False, margin=4.0)
    for _ in range(5):
        selector()
    assert selector.state == "eager"


@pytest.mark.parametrize("pure", [True, False])
def test_the_decision_is_told_once(pure):
    told: list[Any] = []
    compiled, eager = ways(0, LONG)
    selector = Selector(
        compiled, eager, pure=pure, cuda=False, samples=2,
        on_decision=lambda r: told.append((r, r.state, r.compiled_ns, r.eager_ns)),
    )
    assert (selector.compiled_ns, selector.eager_ns) == (None, None)
    for _ in range(10):
        selector()
    assert told == [(selector, "compiled", selector.compiled_ns, selector.eager_ns)]
    assert 0 < selector.compiled_ns < selector.eager_ns and selector.eager_ns >= LONG * 1e9
    assert selector.compiled is compiled and selector.eager is eager


def test_what_the_listener_raises_stays_out_of_the_program(monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda u: seen.append(u.exc_value))
    selector = Selector(len, len, pure=True, cuda=False, samples=1, on_decision=lambda r: 1 / 0)
    assert [selector([1]) for _ in range(4)] == [1] * 4
    assert len(seen) == 1 and isinstance(seen[0], ZeroDivisionError)


# ---- exceptions ----
@pytest.mark.parametrize("pure", [True, False])
def test_what_the_compiled_way_raises_passes_through_and_is_not_measured(pure):
    compiled, eager = ways(0, LONG)
    selector = Selector(compiled, eager, pure=pure, cuda=False, samples=2)
    error = compiled.error = ValueError("mine")
    for _ in range(6):
        with pytest.raises(ValueError) as raised:
            selector()
        assert raised.value is error
    compiled.error = None
    assert selector.state == "measuring"
    for _ in range(6):
        selector()
    assert selector.state == "compiled"


@pytest.mark.parametrize("pure", [True, False])
def test_a_compiled_way_that_starts_to_raise_while_it_is_measured(pure):
    compiled, eager = ways(0, LONG)
    selector = Selector(compiled, eager, pure=pure, cuda=False, samples=2)
    selector()
    compiled.error = ValueError("mine")
    for _ in range(3):
        with pytest.raises(ValueError, match="mine"):
            selector()
    assert selector.state == "measuring" and selector.compiled_ns is None
    compiled.error = None
    for _ in range(4):
        selector()
    assert selector.state == "compiled"


def test_an_eager_way_that_raises_aside_is_dropped():
    compiled, eager = ways(LONG, 0)
    told: list[str] = []
    selector = Selector(compiled, eager, pure=True, cuda=False, on_decision=lambda r: told.append(r.state))
    selector()
    eager.error = RuntimeError("out of memory")
    assert [selector()[0] for _ in range(5)] == ["compiled"] * 5
    assert selector.state == "compiled" and told == ["compiled"] and eager.calls == 1


def test_an_interrupt_of_the_aside_run_is_the_users():
    compiled, eager = ways(0, 0)
    selector = Selector(compiled, eager, pure=True, cuda=False)
    selector()
    eager.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        selector()
    assert selector.state == "measuring" and compiled.calls == 2


def test_what_eager_raises_in_its_turn_passes_through():
    compiled, eager = ways(0, 0)
    selector = Selector(compiled, eager, pure=False, cuda=False)
    selector()
    selector()
    eager.error = ValueError("mine")
    with pytest.raises(ValueError, match="mine"):
        selector()


# ---- lifetime and threads ----
def test_results_of_aside_runs_are_dropped_and_nothing_leaks():
    made: list[Any] = []

    def make(x):
        result = x + 1
        made.append(weakref.ref(result))
        return result

    selector = Selector(make, make, pure=True, cuda=False)
    x = torch.zeros(2)
    selector(x)
    before = sys.getrefcount(x), sys.getrefcount(make)
    for _ in range(10):
        selector(x)
    assert (sys.getrefcount(x), sys.getrefcount(make)) == before
    assert [ref() for ref in made] == [None] * len(made)


@pytest.mark.parametrize("calls", [0, 2, 10])
def test_a_cycle_through_a_selector_is_collected(calls):
    class Holder:
        selector: Any

        def __call__(self):
            return 1

    holder = Holder()
    holder.selector = Selector(holder, holder, pure=True, cuda=False, on_decision=lambda selector, holder=holder: None)
    for _ in range(calls):
        holder.selector()
    ref = weakref.ref(holder)
    del holder
    gc.collect()
    assert ref() is None


def test_a_selector_inside_itself_runs_the_compiled_way():
    def compiled(depth):
        return selector(depth - 1) + 1 if depth else 0

    def eager(depth):
        time.sleep(LONG)
        return selector(depth - 1) + 1 if depth else 0

    for pure in (True, False):
        selector = Selector(compiled, eager, pure=pure, cuda=False)
        assert [selector(5) for _ in range(10)] == [5] * 10
        assert selector.state == "compiled"


@pytest.mark.parametrize("pure", [True, False])
def test_only_one_thread_measures(pure):
    inside = threading.Event()
    leave = threading.Event()

    def eager():
        inside.set()
        leave.wait(20)
        return "eager"

    selector = Selector(lambda: "compiled", eager, pure=pure, cuda=False, samples=1)
    selector()
    if not pure:
        selector()
    thread = threading.Thread(target=selector)
    thread.start()
    assert inside.wait(20)
    assert [selector() for _ in range(5)] == ["compiled"] * 5
    assert selector.state == "measuring"
    leave.set()
    thread.join()
    assert selector.state == "compiled"


def test_many_threads_decide_once():
    told: list[str] = []
    selector = Selector(
        lambda x: x, lambda x: (time.sleep(LONG), x)[1], pure=True, cuda=False, samples=5,
        on_decision=lambda r: told.append(r.state),
    )
    wrong: list[Any] = []

    def work(number):
        for _ in range(200):
            if selector(number) != number:
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _ in range(6):
        selector(1)
    assert wrong == [] and told == ["compiled"]


def test_without_samples_there_is_no_choice():
    compiled, eager = ways(LONG, 0)
    told: list[Any] = []
    selector = Selector(compiled, eager, pure=False, cuda=False, samples=0, on_decision=told.append)
    assert selector.state == "compiled" and (selector.compiled_ns, selector.eager_ns) == (None, None)
    assert [selector(number)[0] for number in range(5)] == ["compiled"] * 5
    assert eager.calls == 0 and not told


# ---- as a callable ----
def test_a_selector_is_called_by_a_slot_of_replacement_code():
    selector = Selector(lambda *args: args, lambda *args: args, pure=True, cuda=False, samples=1)
    slot = native.Slot(selector, native.SLOT_VALUE)
    assert [slot(1, 2) for _ in range(5)] == [(1, 2)] * 5
    assert [slot(*range(n)) for n in range(4)] == [tuple(range(n)) for n in range(4)]


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((len,), {"pure": True, "cuda": False}),
        ((len, 3), {"pure": True, "cuda": False}),
        ((3, len), {"pure": True, "cuda": False}),
        ((len, len), {"pure": True}),
        ((len, len), {"cuda": True}),
        ((len, len, True, False), {}),
        ((len, len), {"pure": True, "cuda": False, "samples": -1}),
        ((len, len), {"pure": True, "cuda": False, "samples": 10**6}),
        ((len, len), {"pure": True, "cuda": False, "margin": 0.0}),
        ((len, len), {"pure": True, "cuda": False, "margin": float("nan")}),
        ((len, len), {"pure": True, "cuda": False, "on_decision": 3}),
    ],
)
def test_wrong_arguments(args, options):
    with pytest.raises((TypeError, ValueError)):
        Selector(*args, **options)


# ---- devices ----
DEVICE = """
from framejit._native import Selector
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode():
    x = torch.empty(2, device="cuda:0")

def way(name, milliseconds):
    def run(x):
        set_number("fake_milliseconds", number("fake_milliseconds") + milliseconds)
        return name
    return run

def selector(compiled, eager, **options):
    options = {"pure": True, "cuda": True, "samples": 2, **options}
    return Selector(way("compiled", compiled), way("eager", eager), **options)
"""


@pytest.mark.parametrize("pure", [True, False])
def test_the_clock_of_the_device_decides(fake_driver, pure):  # noqa: F811
    fake_driver(f"""{DEVICE}
for times, quicker in (((5, 9), "compiled"), ((9, 5), "eager")):
    told = []
    r = selector(*times, pure={pure}, on_decision=lambda r: told.append(r.state))
    for _ in range(6):
        r(x)
    assert told == [r.state] == [quicker]
    assert (r.compiled_ns, r.eager_ns) == (times[0] * 10**6, times[1] * 10**6)
    assert number("fake_events") == 0
assert fake.fake_current() is None
""")


def test_the_decision_waits_until_the_device_is_done(fake_driver):  # noqa: F811
    fake_driver(f"""{DEVICE}
set_number("fake_busy", 1)
r = selector(9, 5)
assert [r(x) for _ in range(10)] == ["compiled"] * 10
assert r.state == "measuring" and number("fake_events") == 8 and r.compiled_ns is None
set_number("fake_busy", 0)
assert r(x) == "eager" and r.state == "eager"
queries = number("fake_queries")
r(x)
assert number("fake_queries") == queries
abandoned = selector(9, 5)
set_number("fake_busy", 1)
for _ in range(5):
    abandoned(x)
assert number("fake_events") == 8
del abandoned
assert number("fake_events") == 0
""")


@pytest.mark.parametrize("pure", [True, False])
def test_the_time_of_the_device_is_compared_with_the_least_of_eager(fake_driver, pure):  # noqa: F811
    fake_driver(f"""{DEVICE}
for least, quicker, runs in ((50, "compiled", 0), (4, "eager", 4)):
    r = selector(9, 5, pure={pure}, least_eager_ns=least * 10**6)
    set_number("fake_busy", 1)
    assert [r(x) for _ in range(5)] == ["compiled"] * 5 and r.state == "measuring"  # the device is not ready
    set_number("fake_busy", 0)
    for _ in range(8):
        r(x)
    assert (r.state, r.eager_is_least) == (quicker, not runs)
    assert (r.compiled_ns, r.eager_ns) == (9 * 10**6, (5 if runs else least) * 10**6)
    assert number("fake_events") == 0
set_number("fake_busy", 1)
abandoned = selector(9, 5, least_eager_ns=50 * 10**6)
abandoned(x), abandoned(x)
assert number("fake_events") == 2
del abandoned
assert number("fake_events") == 0
""")


def test_a_devices_first_run_of_eager_does_not_settle_it(fake_driver):  # noqa: F811
    fake_driver(f"""{DEVICE}
taken = iter([900, 50, 50, 50])
def eager(x):
    set_number("fake_milliseconds", number("fake_milliseconds") + next(taken))
    return "eager"
r = Selector(way("compiled", 5), eager, pure=True, cuda=True)
for _ in range(5):
    r(x)
assert r.state == "compiled" and r.eager_ns == 50 * 10**6 and next(taken) == 50
""")


def test_a_host_that_is_slower_than_the_device_counts(fake_driver):  # noqa: F811
    fake_driver(f"""{DEVICE}
import time
def slow(x):
    time.sleep(0.02)
    return "slow"
r = Selector(slow, way("eager", 5), pure=True, cuda=True, samples=1)
r(x), r(x)
assert r.state == "eager" and r.compiled_ns >= 20 * 10**6 and r.eager_ns == 5 * 10**6
""")


def test_nothing_is_measured_while_a_stream_is_captured(fake_driver):  # noqa: F811
    fake_driver(f"""{DEVICE}
for pure in (True, False):
    set_number("fake_capturing", 1)
    before = number("fake_milliseconds")
    r = selector(1, 100, pure=pure)
    assert [r(x) for _ in range(8)] == ["compiled"] * 8
    assert number("fake_milliseconds") == before + 8 and r.state == "measuring"
    set_number("fake_capturing", 0)
    for _ in range(4):
        r(x)
    assert r.state == "compiled" and number("fake_events") == 0
""")


def test_a_device_without_a_clock_leaves_the_hosts(fake_driver):  # noqa: F811
    fake_driver(f"""{DEVICE}
set_number("fake_elapsed_error", 1)
r = selector(1, 100, pure=True)
for _ in range(4):
    r(x)
assert r.state != "measuring" and r.eager_ns < 50 * 10**6 and number("fake_events") == 0
""")


@pytest.mark.gpu
def test_the_time_of_the_device_counts():
    x = torch.randn(4096, 4096, device="cuda")

    def heavy(x):
        for _ in range(20):
            y = x @ x
        return y

    def light(x):
        time.sleep(LONG)  # the host takes longer, the device far less
        return x

    selector = Selector(heavy, light, pure=True, cuda=True, samples=2)
    for _ in range(3):
        selector(x)
    torch.cuda.synchronize()
    selector(x)
    assert selector.state == "eager" and selector.compiled_ns > selector.eager_ns >= LONG * 1e9
