"""A signal whose handler raises while a graph runs or while one is captured: the exception comes where the program goes
on, in the try and with blocks that it is in there, and all that came before it has been done.

So it is as if the signal had come a moment later. The programs here are such that plain Python does not look for
signals before that moment, and so has to give the same.
"""

import _thread
import signal
import threading
import warnings

import pytest
import torch

import framejit
from framejit.backends.fuse.backend import fuse_graph
from framejit.errors import FramejitWarning

library = torch.library.Library("framejit_interrupts", "DEF")
library.define("come(Tensor signal) -> ()")
# All in C, so that a plan is the first to look for signals. The tensor is taken for the number that it holds.
library.impl("come", _thread.interrupt_main, "CPU")
library.impl("come", lambda signal: None, "Meta")
in_c = torch.ops.framejit_interrupts.come.default
NOW, NEVER = int(signal.SIGUSR1), int(signal.SIGUSR2)


class Late(Exception):
    """What a handler raises that limits time."""


@pytest.fixture(autouse=True, params=[KeyboardInterrupt, Late])
def raised(request):
    def raises(number, frame):
        raise request.param(f"signal {int(number)}")

    before = signal.signal(NOW, raises), signal.signal(NEVER, lambda number, frame: None)
    yield request.param
    signal.signal(NOW, before[0]), signal.signal(NEVER, before[1])


def in_backend(number):
    """The signal comes in plain Python; in captured code the backend sends it."""
    if not framejit.is_compiling():
        in_c(number)


come = in_c


def interpreted(gm, inputs):
    """A graph that Python runs, and that is interrupted once in each call of the program: behind its last operation."""

    def run(*inputs):
        results = gm.forward(*inputs)
        for number in inputs:
            if not number.dim() and number == NOW and not sent:
                sent.append(NOW)
                in_c(number)
        return results

    return run


def planned(gm, inputs):
    compiled = fuse_graph(gm, inputs)
    return getattr(compiled, "compiled", compiled)  # the plan, however quick


sent = []  # by the backend


class State:
    def __init__(self):
        self.steps, self.log, self.total = 0, [], torch.zeros(3)

    def seen(self):
        return self.steps, self.log, self.total.tolist()


class Noted:
    def __init__(self, state, suppresses=False):
        self.state, self.suppresses = state, suppresses

    def __enter__(self):
        self.state.log.append("in")

    def __exit__(self, cls, error, traceback):
        self.state.log.append(("out", cls))
        return self.suppresses


def whole(state, x, number):
    state.steps += 1
    state.total = state.total + x + number * 0
    state.log.append("before")
    come(number)
    return x


def up_to_a_break(state, x, number):
    try:
        with Noted(state):
            state.steps += 1
            state.total = state.total + x + number * 0
            come(number)
            framejit.graph_break()
            state.log.append("behind")
            x = x + 1
    except (KeyboardInterrupt, Late) as e:
        state.log.append(str(e))
        return x * 3
    finally:
        state.log.append("finally")
    return x


def behind_a_break(state, x, number):
    try:
        with Noted(state):
            framejit.graph_break()
            state.steps += 1
            state.total = state.total + x + number * 0
            come(number)
            framejit.graph_break()
            state.log.append("behind")
    except (KeyboardInterrupt, Late) as e:
        state.log.append(str(e))
        return x * 3
    return x


def below(state, x, number):
    with Noted(state):
        framejit.graph_break()
        x = x * 2 + number * 0
        state.log.append("below")
        come(number)
        framejit.graph_break()
        state.log.append("behind")
    return x


def in_a_call(state, x, number):
    try:
        x = below(state, x, number) + 1
        state.log.append("after")
    except (KeyboardInterrupt, Late) as e:
        state.log.append(str(e))
    return x + 1


def suppressed(state, x, number):
    for i in range(3):
        with Noted(state, suppresses=True):
            state.total = state.total + x + number * 0
            come(number)
            framejit.graph_break()
            state.log.append(i)
    return x + 1


def in_a_handler(state, x, number):
    try:
        try:
            raise ValueError(int(x.sum()))
        except ValueError:
            state.total = state.total + x + number * 0
            come(number)
            framejit.graph_break()
            state.log.append("behind")
    except (KeyboardInterrupt, Late) as e:
        state.log.append((str(e), type(e.__context__)))
    return x + 1


PROGRAMS = [whole, up_to_a_break, behind_a_break, in_a_call, suppressed, in_a_handler]


def outcome(function, number):
    state, x = State(), torch.ones(3)
    sent.clear()
    try:
        result = function(state, x, torch.tensor(number)).tolist()
    except (KeyboardInterrupt, Late) as e:
        result = type(e), str(e)
    return result, state.seen(), x.tolist()


def agrees(program, backend):
    """Once as the first thing that the compiled code meets, and after calls that were not interrupted."""
    for first in (NOW, NEVER):
        framejit.reset()
        compiled = framejit.optimize(program, backend=backend)
        for number in (first, NEVER, NOW, NEVER, NOW, NOW, NEVER):
            assert outcome(compiled, number) == outcome(program, number)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_while_a_plan_runs(program):
    agrees(program, planned)


@pytest.mark.parametrize(
    "program", [p for p in PROGRAMS if p is not suppressed], ids=lambda program: program.__name__
)
def test_while_python_runs_a_graph(program, monkeypatch):
    monkeypatch.setitem(globals(), "come", in_backend)
    agrees(program, interpreted)


def into_a_file(state, x, number):
    """What leaves the block is plain Python's `__exit__`, in the end of the block that no signal comes before."""
    with Noted(state):
        x = x + 1
        in_c(number)
        y = x * 2
    state.log.append("behind")
    return y


def break_at_the_end(state, x, number):
    try:
        with Exits(state):
            come(number)
            x = x + number * 0
        state.log.append("behind")
    except (KeyboardInterrupt, Late) as e:
        state.log.append(str(e))
    return x


class Exits:
    """Whose exit breaks graphs."""

    def __init__(self, state):
        self.state = state

    def __enter__(self):
        framejit.graph_break()
        self.state.log.append("in")

    def __exit__(self, cls, error, traceback):
        framejit.graph_break()
        self.state.log.append("out")


@pytest.mark.parametrize("program", [into_a_file, break_at_the_end], ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", [planned, "eager"])
def test_blocks_are_left(program, backend):
    """Signals come later than in plain Python, so that what they leave out differs; not that blocks are left."""
    compiled = framejit.optimize(program, backend=backend)
    for number in (NEVER, NOW, NEVER, NOW):
        result, (_, log, _), _ = outcome(compiled, number)
        assert log.count("in") == sum("out" in str(entry) for entry in log)
        assert (number == NEVER) == (isinstance(result, list) and not any("signal" in str(entry) for entry in log))


def captures(state, x, number):
    try:
        with Noted(state):
            framejit.graph_break()
            x = x + 1
            state.log.append("captured")
            x = x * 2
    except (KeyboardInterrupt, Late) as e:
        state.log.append(str(e))
        return x * 3
    return x


@pytest.mark.parametrize(
    "program, is_first", [(captures, True), (up_to_a_break, True), (in_a_call, True), (up_to_a_break, False)]
)
def test_while_a_graph_is_compiled(program, is_first, raised):
    """What had been entered is left; later calls are right, and captured."""
    compiled_graphs = []

    def backend(gm, inputs):
        compiled_graphs.append(gm)
        if len(compiled_graphs) == 1 + (not is_first):
            in_c(torch.tensor(NOW))
            signal.getsignal(NOW)  # where Python looks
        return gm.forward

    compiled = framejit.optimize(program, backend=backend)
    result, (steps, log, _), _ = outcome(compiled, NEVER)
    assert len(compiled_graphs) >= 1 + (not is_first)
    assert "signal" in str((result, log)) and log.count("in") == str(log).count("'out'")
    if program is captures:
        assert log == (["in", ("out", raised), f"signal {NOW}"])
    for _ in range(3):
        assert outcome(compiled, NEVER) == outcome(program, NEVER)
    n = len(compiled_graphs)
    assert outcome(compiled, NEVER) == outcome(program, NEVER) and len(compiled_graphs) == n


@pytest.mark.parametrize("program", [whole, behind_a_break], ids=lambda program: program.__name__)
def test_signals_that_come_quicker_than_the_graph_runs(program, monkeypatch, raised):
    """The graph is not begun over and over."""
    runs = []

    def backend(gm, inputs):
        def run(*inputs):
            runs.append(len(inputs))
            results = gm.forward(*inputs)
            if any(not number.dim() and number == NOW for number in inputs):
                in_c(torch.tensor(NOW))
            return results

        return run

    monkeypatch.setitem(globals(), "come", in_backend)
    compiled = framejit.optimize(program, backend=backend)
    for number in (NEVER, NOW, NOW, NEVER):
        runs.clear()
        result, (_, log, _), _ = outcome(compiled, number)
        assert len(runs) <= 2
        assert log.count("in") == str(log).count("'out'")
        assert (number == NOW) == ("signal" in str((result, log)))


def locked(lock, state, x):
    with lock:
        state.steps += 1
        state.total = state.total + x
        framejit.graph_break()
        x = torch.relu(x) * 2
        state.log.append(1)
    return x


def test_whenever_a_signal_comes(raised):
    """While capturing, compiling, and in between, with nothing to tell when: no mode of torch's stays entered, nothing
    is taken for a defect, and the next call is right. A lock may stay locked, as in plain Python, whose with blocks
    begin and end in several instructions; hardly ever."""
    signal.signal(signal.SIGALRM, signal.getsignal(NOW))
    n_raised = n_locked = 0
    try:
        for i in range(60):
            if i % 3 == 0:
                framejit.reset()
                compiled = framejit.optimize(locked, backend="fuse")
            lock, state, x = threading.Lock(), State(), torch.ones(3)
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + 0.0007 * i)
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error", FramejitWarning)
                        compiled(lock, state, x)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except (KeyboardInterrupt, Late):
                n_raised += 1
            n_locked += lock.locked()
            assert type(x + 1) is torch.Tensor and (x + 1).tolist() == [2.0] * 3
            state = State()
            assert compiled(threading.Lock(), state, x).tolist() == [2.0] * 3 and state.seen() == (1, [1], [1.0] * 3)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert n_raised and n_locked < 6
