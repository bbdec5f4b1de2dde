"""Hooks on what autograd saves, among them those of checkpointing, which end the recomputation in the middle of a
function."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import framejit

CALLS = 3


class Counter:
    n = 0


def appends(log, first, second, x):
    log.append("a")
    y = torch.relu(x @ first)
    log.append("b")
    z = torch.sin(y @ second)
    log.append("c")
    return z


def sets_attributes(log, first, second, x):
    counter = Counter()
    y = (x @ first).relu()
    log.append(counter)
    counter.n += 1
    Counter.n += 1
    z = (y @ second).sin()
    Counter.n += 1
    log.append(Counter.n)
    return z


def breaks(log, first, second, x):
    y = torch.relu(x @ first)
    log.append("a")
    framejit.graph_break()
    z = torch.sin(y @ second).exp()
    log.append("b")
    return z.sigmoid()


total = 0


def sets_variables(log, first, second, x):
    global total
    total = len(log)
    made = lambda: total + 1  # noqa: E731
    y = (x @ first).cos()
    total = made()
    log.append(total)
    return (y @ second).sin().cos()


def nothing_else(log, first, second, x):
    return torch.sin(torch.relu(x @ first) @ second)


def run(block, around, wrap):
    torch.manual_seed(0)
    Counter.n = 0
    log, seen = [], []
    first, second = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    called = wrap(lambda x: block(log, first, second, x))
    for _ in range(CALLS):
        x = torch.ones(2, 4, requires_grad=True)
        around(called, x, log).sum().backward()
        seen.append(
            (
                x.grad, first.grad.clone(), second.grad.clone(),
                [e if isinstance(e, (str, int, tuple)) else vars(e) for e in log], Counter.n,
            )
        )
    return seen


def checkpointed(called, x, log):
    return checkpoint(called, x, use_reentrant=False)


def to_the_end(called, x, log):
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        return checkpoint(called, x, use_reentrant=False)


def two_deep(called, x, log):
    return checkpoint(lambda y: checkpoint(called, y * 2, use_reentrant=False).tanh(), x, use_reentrant=False)


def counted(called, x, log):
    with saved_tensors_hooks(lambda t: (log.append(("saved", len(log))), t)[1], lambda t: t):
        return called(x)


def sometimes(called, x, log):
    return checkpoint(called, called(x), use_reentrant=False) + called(x)


def same(expected, got):
    for one, other in zip(expected, got, strict=True):
        assert all(map(torch.allclose, one[:3], other[:3]))
        assert one[3:] == other[3:]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("around", [checkpointed, to_the_end, two_deep, counted, sometimes])
@pytest.mark.parametrize("block", [appends, sets_attributes, sets_variables, breaks, nothing_else])
def test_side_effects_of_a_function_under_hooks(block, around, backend):
    same(run(block, around, lambda f: f), run(block, around, lambda f: framejit.optimize(f, backend=backend)))


def test_without_side_effects_the_function_stays_compiled():
    log = []
    w = torch.ones(4, 4, requires_grad=True)
    fast = framejit.optimize(lambda x: nothing_else(log, w, w, x), fullgraph=True)
    for _ in range(2):
        checkpoint(fast, torch.ones(2, 4, requires_grad=True), use_reentrant=False).sum().backward()
    assert [entry.tag.state for entry in fast.entries] == ["compiled"]


def times_a_number(x, k):
    return (x * k).clamp(max=k)


def times_what_was_read(x, k):
    with torch.no_grad():
        k = x.sum().item() + k
    return x.sin() * k


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("block", [times_a_number, times_what_was_read])
@pytest.mark.parametrize("met_before", [False, True])
def test_numbers_are_not_saved(block, backend, met_before):
    """Not assumed, or read from a tensor: eager saves the number itself, of which hooks see nothing."""
    optimized = framejit.optimize(block, backend=backend)
    for number in (1.5, 2.5, 3.5, 4.5):
        seen, x = [], torch.ones(3, requires_grad=True)
        if met_before:
            optimized(x, number)
        for fn in (block, optimized):
            shapes = []
            with saved_tensors_hooks(lambda t: (shapes.append(t.shape), t)[1], lambda t: t):  # noqa: B023
                fn(x, number)
            seen.append(shapes)
        assert seen[0] == seen[1]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_checkpoint_within_compiled_code_is_computed_again_outside(backend):
    """The forward pass of a block that a graph can't hold is compiled; the backward pass calls it from plain Python."""
    lengths = []

    def block(x, k, *, shift):
        lengths.append(len(x))
        return (x * k).sin() + shift

    @framejit.optimize(backend=backend)
    def fn(x, k):
        return checkpoint(block, x, k, use_reentrant=False, shift=1)

    for number in (1.5, 2.5, 3.5):
        for rows in (2, 3):
            x = torch.ones(rows, requires_grad=True)
            fn(x, number).sum().backward()
            torch.testing.assert_close(x.grad, number * torch.cos(torch.full((rows,), number)))
    assert lengths == [2, 2, 3, 3] * 3


class Counts:
    def __init__(self):
        self.n = 0

    def pack(self, t):
        self.n += 1
        return t


def reads_a_variable(x):
    n = 0

    def pack(t):
        nonlocal n
        n += 1
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        y = x.sin()
        first = n
        z = y.exp() * y
        return first, n, z


def reads_a_length(x):
    seen = []
    with saved_tensors_hooks(lambda t: (seen.append(t.shape), t)[1], lambda t: t):
        y = x.sin()
        first = len(seen)
        z = y.exp() * y
        return first, seen, z


def reads_an_attribute(x):
    counts = Counts()
    with saved_tensors_hooks(counts.pack, lambda t: t):
        y = x.sin()
        return counts.n, y.exp() * y, counts.n


def reads_in_an_inner_function(x):
    seen = []
    note = seen.append

    def look():
        return len(seen)

    def pack(t):
        seen.append(look())
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        y = x.sin()
        note("between")
        return look(), y.exp() * y, seen


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn", [reads_a_variable, reads_a_length, reads_an_attribute, reads_in_an_inner_function])
def test_what_hooks_have_changed_is_seen(fn, backend):
    optimized = framejit.optimize(fn, backend=backend)
    for n in range(3):
        x = (torch.arange(3.0) + n).requires_grad_()
        assert repr(fn(x)) == repr(optimized(x))
