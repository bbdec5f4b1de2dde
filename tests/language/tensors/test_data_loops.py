"""A loop that data ends is one node of the graph: a `while` on data, and a `for` over a range with a `break` on data.
Where that could be told from the program, the graph breaks at the loop's condition."""
import _thread
import itertools
import signal
import threading
import time

import pytest
import torch

import framejit

from support import CountingBackend, Pair, check, of_kind, recorded, seed

X = torch.tensor([3.0, -2.0, 0.5, 1.0])
OTHERS = (X * 0, X * 100, X + 5, -X, X / 100)


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


def either(x):
    n = 0
    while x.max() > 4 or n < 2:
        x = x / 2
        n += 1
    return x * n


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


def conditional(x):
    if x.sum() > 1:
        while x.max() > 1:
            x = x / 2
    return x + 1


ONE_GRAPH = [
    halved, gives_its_argument, counted, count_comes_first, negated, breaks, breaks_with_its_number,
    breaks_first, runs_out, endless, endless_with_a_break, fibonacci, newton, nested, branch_inside,
    unrolled_inside, list_inside, number_of_data, flag, truth, inlined, two_loops, in_an_unrolled_loop,
    without_gradients, within_autocast, reshaped, invariant, left_in_the_middle,
]


def same(program, fast, x):
    results, seen = [], {}
    for run in (program, fast):
        given = x.clone()
        seed(3)
        found = run(given)
        flat = found if isinstance(found, tuple) else (found,)
        shared = [
            isinstance(p, torch.Tensor) and isinstance(q, torch.Tensor) and p.data_ptr() == q.data_ptr()
            for p in (given, *flat) for q in flat
        ]
        strides = [(p.stride(), p._is_view()) for p in flat if isinstance(p, torch.Tensor)]
        kinds = [(type(p), p is given) for p in flat]
        results.append((given, flat, shared, strides, torch.rand(2)))
        assert kinds == seen.setdefault("kinds", kinds)
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6, equal_nan=True)


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


# ---- what could be told from the program -------------------------------------------------------------------


def other_shapes(x):
    while x.numel() > 1 and x.sum() > 1:
        x = x[1:] + 0
    return x + 1


def other_dtypes(x):
    x = x.int()
    while x.abs().max() > 1:
        x = x / 2
    return x + 1


def other_strides(x):
    x = x.reshape(2, 2)
    while x.abs().max() > 1:
        x = x.T / 2
    return x + 1


def in_place(x):
    y = x * 1
    while y.abs().max() > 1:
        y /= 2
    return y


def argument_in_place(x):
    while x.abs().max() > 1:
        x /= 2
    return x + 1


def written_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    y.add_(1)
    return y, x


def input_written_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    x.add_(1)
    return y * 2


def identity(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return y is x, y + 1


def view_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return y[1:], y


def two_names(x):
    y = z = x * 1
    while y.abs().max() > 1:
        y = z = y / 2
    return y, z


def swapped(x):
    y, z = x * 1, x * 2
    while y.abs().max() > 1:
        y, z = z / 8, y
    return y, z


def view_of_what_is_carried(x):
    x = x * 1
    y = x
    while y.abs().max() > 1:
        x = x / 2
        y = x[:]
    return x, y


def two_names_in_the_middle(x):
    y = z = x * 1
    n = 0
    while y.abs().max() > 1:
        y = y / 2
        n += 1
        if y.sum() < 3:
            break
        z = y
    z.add_(n)
    return y, z


def inner_loop_takes_over(x):
    y, z = x * 1, x * 2
    n = 0
    while n < 1 and y.sum() < 100:
        n += 1
        y = y - 1
        k = 0
        while y.sum() < 3 and k < 2:
            k += 1
            z = y
    z.mul_(2)
    return y, z


def kept_by_a_branch(x):
    y, n = x.float(), 0
    while y.abs().sum() > 1 and n < 2:
        n += 1
        if y.sum() > 0:
            y = y - 1
    return y, y is x


def handed_out_by_a_branch(x):
    y, n = x.float(), 0
    while y.abs().sum() > 1 and n < 2:
        n += 1
        if y.sum() > 0:
            y = y - 1
    return y


def view_of_what_is_made(x):
    y, n = x.reshape(2, 2) * 1, 0
    while n < 3 and y.sum() < 100:
        n += 1
        y = (x + n).view(2, 2)
    return y, n


def strides_of_a_view(x):
    y, n = torch.zeros(3, 3), 0
    while n < 2 and y.sum() < 100:
        n += 1
        y = (torch.ones(3, 4) * x)[:, 1:]
    return y.is_contiguous(), y * 2


def asks_in_the_loop(x):
    y = z = x * 1
    n, same = 0, 0
    while y.abs().max() > 1 and n < 5:
        if y is z:
            same += 1
        n += 1
        y = y / 2
    return y, same


def writes_around(x):
    y, n = x * 1, 0
    while y.sum() < 9 and n < 5:
        y.add_(1)
        n += 1
    return y, n


def left_as_another_kind(x):
    found = False
    while x.abs().max() > 1:
        x = x / 2
        found = x.sum() > 1
        if x.sum() < 2:
            break
        found = False
    return found, x * 1


def left_as_another_dtype(x):
    y = x.sum() * 1
    while x.abs().max() > 1:
        x = x / 2
        y = x.sum().double()
        if x.sum() < 2:
            break
        y = x.sum() * 1
    return y * 1, x * 1


def left_as_none(x):
    y = None
    while x.abs().max() > 1:
        x = x / 2
        y = x + 1
        if x.sum() < 2:
            break
        y = None
    return y, x * 1


def else_clause(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() < -2:
            break
    else:
        x = x + 100
    return x + 1


def continues(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() > 1:
            continue
        x = x * 0.9
    return x + 1


def number_is_size(x):
    n = 1
    while x.abs().max() > 1:
        x = x / 2
        n += 1
    return torch.ones(n) * x.sum()


def large_ints(x):
    n = 3
    while x.abs().max() > 1:
        x = x / 1.01
        n = n * 3
    return x * 1, n


def int_becomes_float(x):
    n = 1
    while x.abs().max() > 1:
        x = x / 2
        n = n / 2
    return x * 1, n


def bound_inside(x):
    while x.abs().max() > 1:
        x = x / 2
        y = x + 1
    return y if x.sum() > 100 else x * 2


def returns_in_the_middle(x):
    while x.abs().max() > 1:
        x = x / 2
        if x.sum() < -1:
            return x * 10
    return x + 1


def in_try(x):
    try:
        while x.abs().max() > 1:
            x = x / 2
    except RuntimeError:
        x = x + 100
    return x + 1


def over_a_list(x):
    for y in [x, x + 1, x + 2]:
        x = x + y
        if x.sum() > 10:
            break
    return x + 1


def iterator_goes_on(x):
    numbers = iter(range(20))
    for i in numbers:
        x = x / 2 + i
        if x.max() > 3:
            break
    return x, next(numbers)


def draws(x):
    while x.mean() < 3:
        x = x + torch.rand_like(x)
        if torch.rand(()) < 0.1:
            break
    return x + torch.rand(4)


def is_a_key(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return {x: 1, y: 2}[x], y in {x: 1}, y + 1


def hung_afterwards(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    y.mark = 1
    return hasattr(x, "mark"), y


def hung_before(x):
    y, x.mark = x, 1
    while y.abs().max() > 1:
        y = y / 2
    return hasattr(y, "mark"), y


def steps_a_count(x):
    numbers = itertools.count()
    while x.max() > 1:
        x = x / 2 - next(numbers)
    return x * 1, next(numbers)


def steps_a_generator(x):
    numbers = (n * n for n in range(20))
    while x.max() > 1:
        x = x / 2 - next(numbers)
    return x * 1, next(numbers)


def steps_several(x):
    numbers = zip(enumerate(reversed([1, 2, 3, 4, 5, 6, 7, 8])), "abcdefgh")
    while x.max() > 1:
        [(n, m), text] = next(numbers)
        x = x / 2 - n * m
    return x * 1, len([*numbers])


def changes_defaults(x):
    def scale(by=0.5):
        return by

    while x.abs().max() > 1:
        x = x * scale()
        scale.__defaults__ = (scale() * 0.75,)
    return x * 1, scale()


BREAKS = [
    other_shapes, other_dtypes, other_strides, in_place, argument_in_place, written_afterwards,
    input_written_afterwards, identity, view_afterwards, two_names, swapped, view_of_what_is_carried, else_clause,
    two_names_in_the_middle, inner_loop_takes_over, kept_by_a_branch, handed_out_by_a_branch, asks_in_the_loop,
    writes_around, view_of_what_is_made, strides_of_a_view, left_as_another_kind, left_as_another_dtype, left_as_none,
    continues, number_is_size, large_ints, int_becomes_float, returns_in_the_middle, in_try, over_a_list,
    iterator_goes_on, draws, conditional, either, is_a_key, hung_afterwards, hung_before, steps_a_count,
    steps_a_generator, steps_several, changes_defaults,
]


@pytest.mark.parametrize("program", BREAKS)
@pytest.mark.parametrize("backend", ["fuse", "counting"])
def test_what_could_be_told(program, backend):
    fast = framejit.optimize(program, backend=CountingBackend() if backend == "counting" else backend)
    for x in (X, *OTHERS, X):
        same(program, fast, x)


@pytest.mark.parametrize("program", [bound_inside])
def test_exceptions(program):
    pair = Pair(lambda: program)
    for x in (X * 0, X * 100, X):
        pair.call(x)


WEIGHT = torch.nn.Parameter(X.clone(), requires_grad=False)


def parameter(x):
    y = WEIGHT
    while y.max() > x.max():
        y = y / 2
    return type(y).__name__, isinstance(y, torch.nn.Parameter), y * 1


def test_parameters():
    pair = Pair(lambda: parameter)
    for x in (X, X / 10, X):
        pair.call(x)


def asks_for_a_mark(x):
    y = x
    while y.abs().max() > 1:
        y = y / 2
    return getattr(y, "mark", None), isinstance(y, torch.nn.Parameter), y


def test_attributes_of_what_may_be_an_argument():
    pair = Pair(lambda: asks_for_a_mark)
    pair.call(X)
    pair.expect(graphs=1, breaks=0)
    marked = X / 10
    marked.mark = "a"
    for x in (marked, X / 10, X):
        pair.call(x)


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
