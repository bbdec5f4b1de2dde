"""A loop that data ends is one node of the graph: a `while` on data, and a `for` over a range with a `break` on
data."""
import _thread
import signal
import threading
import time

import pytest
import torch

import framejit
from tests.language.tensors.loop_results import OTHERS, X, same

from support import CountingBackend, Pair, check, of_kind, recorded


def halved(x):
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


def gives_its_argument(x):
    while x.abs().max() > 1:
        x = x / 2
    return x


def counted(x):
    n = 0
    while x.max() > 0.5 and n < 4:
        x = x / 2
        n += 1
    return x, n


def count_comes_first(x):
    n, total = 0, 0.0
    while n < 5 and x.max() > 0.5:
        x = x / 2
        total += 0.25
        n = n + 1
    return x, n, total


def negated(x):
    while not x.max() < 1:
        x = x - 1
    return x * 2


def breaks(x):
    for _ in range(100):
        x = x / 2
        if x.max() < 1:
            break
    return x


def breaks_with_its_number(x):
    for i in range(2, 60, 3):
        x = x / 2 + i * 0.001
        if x.max() < 1:
            break
    return x, i


def breaks_first(x):
    for i in range(4):
        if x.max() < 1:
            break
        x = x / 2 - i
    return x + 1


def runs_out(x):
    for _ in range(3):
        x = x / 2
        if x.max() < -1e6:
            break
    return x


def endless(x):
    while True:
        x = x / 2
        if x.max() < 1:
            return x + 1


def endless_with_a_break(x):
    n = 0
    while True:
        x = x / 2
        n += 1
        if x.max() < 1:
            break
    return x, n


def left_in_the_middle(x):
    y = x * 0
    while x.max() > 1:
        x = x - 1
        if x.min() < -1.5:
            break
        y = y + x
    return x * 1, y


def fibonacci(x):
    p, q = x * 1, x + 1
    while q.abs().sum() < 100:
        p, q = q, p + q + 1
    return p, q


def newton(x):
    y = x.abs() + 1
    steps = 0
    while (y * y - x.abs()).abs().max() > 1e-3:
        y = 0.5 * (y + x.abs() / y)
        steps += 1
    return y, steps


def nested(x):
    total = x * 0
    while x.max() > 1:
        y = x
        while y.max() > 0.5:
            y = y * 0.4
        total = total + y
        x = x - 1
    return total, x * 1


def branch_inside(x):
    while x.abs().max() > 1:
        if x.sum() > 2:
            x = x / 2
        else:
            x = x / 3
    return x + 1


def unrolled_inside(x):
    while x.abs().max() > 1:
        for scale in (0.5, 0.75):
            x = x * scale
    return x + 1


def list_inside(x):
    while x.abs().max() > 1:
        parts = []
        for i in range(3):
            parts.append(x * i)
        x = torch.stack(parts).mean(0) / 2
    return x + 1


def number_of_data(x):
    level = x.abs().max().item()
    while level > 1.0:
        level = level / 2
        x = x * 0.5
    return x + level, level


def flag(x):
    done = False
    while not done:
        x = x / 2
        done = x.abs().max() < 1
    return x + 1


def truth(x):
    n, large = 0, True
    while x.max() > 1:
        x = x - 1
        n, large = n + 1, False
    return x * 1, large


def inlined(x):
    return halved(x) + counted(x)[0] + torch.relu(negated(x))


def two_loops(x):
    while x.max() > 1:
        x = x - 1
    y = x.sum()
    while y < 3:
        y = y + 1
    return x * y


def in_an_unrolled_loop(x):
    for scale in (1.0, 0.5):
        x = x * 3
        while x.abs().max() > scale:
            x = x / 2
    return x + 1


def without_gradients(x):
    with torch.no_grad():
        y = x * 1
        while y.abs().max() > 1:
            y = y / 2
    return y + x


def within_autocast(x):
    w, y = x.expand(4, 4) / (x.abs().max() + 1), x.expand(4, 4) * 1
    with torch.autocast("cpu", dtype=torch.bfloat16):
        while y.abs().max() > 1:
            y = (y @ w.T).float() / 8
    return y + w


def reshaped(x):
    while x.abs().max() > 1:
        x = (x.reshape(2, 2) / 2).reshape(4)
    return x + 1


def invariant(x):
    mode = None
    while x.abs().max() > 1:
        mode = None
        x = x / 2
    return x + 1, mode


ONE_GRAPH = [
    halved, gives_its_argument, counted, count_comes_first, negated, breaks, breaks_with_its_number,
    breaks_first, runs_out, endless, endless_with_a_break, fibonacci, newton, nested, branch_inside,
    unrolled_inside, list_inside, number_of_data, flag, truth, inlined, two_loops, in_an_unrolled_loop,
    without_gradients, within_autocast, reshaped, invariant, left_in_the_middle,
]


@pytest.mark.filterwarnings("error::framejit.FramejitWarning")  # that a graph failed, and plain Python went on
@pytest.mark.parametrize("program", ONE_GRAPH)
@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_one_graph(program, backend):
    if backend == "eager":
        pair = check(program, X, graphs=1, breaks=0)
        for x in OTHERS:
            pair.call(x, captures=False)
    fast = framejit.optimize(program, backend=backend)
    for x in (X, *OTHERS, X):
        same(program, fast, x)
    assert len(fast.entries) == 1


def test_off():
    with framejit.config.patch(branch_operations=0):
        check(halved, X, graphs=3, breaks=1)


def long_body(x):
    while x.abs().max() > 1:
        for _ in range(200):
            x = x * 0.995
    return x + 1


def test_long_bodies_break():
    check(long_body, X, graphs=3, breaks=1)


def test_it_is_told():
    framejit.reset()  # other tests' entries for this function
    with recorded() as log:
        framejit.optimize(halved)(X)
    [event] = of_kind(log, "selected")
    assert (event.function, event.operations, event.form) == ("halved", 4, "loop")
    assert event.line == halved.__code__.co_firstlineno + 1
    framejit.reset()
    assert "the loop on data (4 operations a turn) is in the graph" in str(framejit.explain(halved)(X))


# ---- effects, errors, random numbers, gradients ---------------------------------------------------------------


def appends(x, log):
    while x.abs().max() > 1:
        x = x / 2
        log.append(x.sum())
    return x + 1


def attribute_of_an_argument(x, log):
    while x.abs().max() > 1:
        x = x / 2
        log[:] = [1]
    return x + 1


def reads_a_list(x, log):
    scale = 2.0
    while x.abs().max() > 1:
        x = x / scale
    log.append(scale)
    return x + len(log)


@pytest.mark.parametrize("program", [appends, attribute_of_an_argument, reads_a_list])
def test_effects(program):
    pair = Pair(lambda: program)
    for x in (X, *OTHERS, X):
        pair.call(x, [])


def indexes(x, table):
    i = (x.sum() * 0).long()
    while table[i] < 5:
        i = i + 1
    return table[i] * 1, i + 1


def raises(x):
    n = 0
    while x.sum() < 50:
        if x.max() > 20:
            raise ValueError(f"after {n}")
        if not float(x.min()) > -30:
            raise KeyError("small")
        x = x * 1.5
        n += 1
    return x, n


def raises_when_it_ends(x):
    while x.sum() < 50:
        x = x * 1.5 + 1
    else:
        raise ValueError("the end")


def test_raises():
    pair = Pair(lambda: raises)
    pair.call(X + 8)
    assert pair.graphs == 1
    for x in (X, X + 1, X * 100, X + 100, X - 40, X + 8):
        pair.call(x)
    check(raises_when_it_ends, X, raises=ValueError)


def test_errors_come_from_the_program():
    pair = Pair(lambda: indexes)
    pair.call(X, torch.arange(8.0))
    assert pair.graphs == 1
    pair.call(X, torch.arange(3.0))
    pair.call(X, torch.arange(20.0))


def draws_in_turns(x):
    n = 0
    while x.mean() < 3:
        x = x + torch.rand_like(x)
        n += 1
    return x, n, torch.rand(2)


def test_random_numbers():
    pair = check(draws_in_turns, X, graphs=1, breaks=0)
    fast = framejit.optimize(draws_in_turns)
    for x in (X, *OTHERS, X):
        pair.call(x, captures=False)
        same(draws_in_turns, fast, x)


def gradients(x, w):
    y = x * w
    while y.abs().max() > 1:
        y = y / 2
    return y.sum()


def gradients_beside(x, w):
    scale = x.detach().abs().max()
    while scale > 1:
        scale = scale / 2
    return (x * w * scale).sum()


@pytest.mark.parametrize("program, graphs", [(gradients, 3), (gradients_beside, 1)])
@pytest.mark.parametrize("backend", ["fuse", "eager", "counting"])
def test_gradients(program, graphs, backend):
    counting = CountingBackend()
    with recorded() as log:
        fast = framejit.optimize(program, backend=counting if backend == "counting" else backend)
        for x in (X, *OTHERS):
            results = []
            for run in (program, fast):
                w = torch.arange(4.0).requires_grad_()
                loss = run(x, w)
                loss.backward()
                results.append((loss.detach(), w.grad))
            torch.testing.assert_close(*results)
    if backend == "counting":
        assert len(counting.graphs) == graphs
        told = [event.reason for event in of_kind(log, "graph_break")]
        assert any("gradients would go back" in reason for reason in told) == (program is gradients)


def test_changed_state():
    pair = Pair(lambda: halved)
    pair.call(X)
    pair.call(X.double())
    pair.call(torch.arange(6.0).reshape(2, 3))
    with torch.no_grad():
        pair.call(X)
    pair.call(X * 1e30)


def test_many_turns():
    def slow(x):
        n = 0
        while x.sum() < 20_000:
            x = x + 1
            n += 1
        return x, n

    pair = check(slow, torch.zeros(1), graphs=1, breaks=0)
    result, n = pair.call(torch.zeros(1), captures=False)
    assert n == 20_000


# ---- endless loops --------------------------------------------------------------------------------------------


def never_ends(x):
    while x.sum() > 0:
        x = x + 0
    return x


@pytest.fixture
def interrupts():
    """Ctrl-C raises, whatever process the tests were started by."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("backend", ["fuse", "eager"])
def test_an_endless_loop_is_interrupted(backend, interrupts):
    fast = framejit.optimize(never_ends, backend=backend)
    fast(-torch.ones(2))
    started, timer = time.monotonic(), threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        fast(torch.ones(2))
    timer.join()
    assert time.monotonic() - started < 20
    assert fast(-torch.ones(2)).tolist() == [-1, -1]
    assert len(fast.entries) == 1


def caught(x):
    turns = 0
    try:
        while x.sum() > 0:
            x = x + 0
    except KeyboardInterrupt:
        turns = 1
    return x + turns


@pytest.mark.timeout(60)
def test_an_interrupt_is_caught_where_the_program_does(interrupts):
    fast = framejit.optimize(caught)
    fast(-torch.ones(2))
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    assert fast(torch.ones(2)).tolist() == [2, 2]
    timer.join()
