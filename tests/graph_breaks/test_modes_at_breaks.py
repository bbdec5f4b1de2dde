"""A graph that ends inside of a block which changes torch's state, or in which such a block ends, changes no state
itself: the code around it does. So backends need not know of it, and ours compiles it."""
import weakref

import pytest
import torch
from torch import nn

import framejit
from framejit.backends.autocast_nesting import nesting

from support import Pair

MODEL = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))


def state():
    return (
        torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(), torch.get_default_dtype(), nesting(),
    )


def no_grad(x):
    with torch.no_grad():
        y = MODEL(x).softmax(-1)
        framejit.graph_break()
        z = y.sum() * 2
    return y, z, MODEL(x) * 2, torch.is_grad_enabled()


def autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = MODEL(x)
        framejit.graph_break()
        y = y + MODEL(x * 2)
        inside = torch.is_autocast_enabled("cpu")
    return y, MODEL(x), inside, torch.is_autocast_enabled("cpu")


def several(x):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        y = MODEL(x)
        with torch.enable_grad(), torch.autocast("cpu", enabled=False):
            z = MODEL(x) * 2
            framejit.graph_break()
            z = z + MODEL(x)
        y = y + 1
        framejit.graph_break()
        y = y * MODEL(x)
    return y, z


def in_a_loop(x):
    results = []
    for n in range(3):
        with torch.no_grad():
            y = MODEL(x + n)
            framejit.graph_break()
        results.append(y + 1)
    return results


def left_changed(x):
    y = MODEL(x) * 2
    torch.set_grad_enabled(False)
    z = MODEL(x) * 3
    framejit.graph_break()
    return y, z + 1, torch.is_grad_enabled()


def of_dtypes(x):
    torch.set_default_dtype(torch.float64)
    y = x * torch.ones(8)
    framejit.graph_break()
    z = y + torch.zeros(8)
    torch.set_default_dtype(torch.float32)
    return y, z, torch.ones(2) * z.sum()


def raising(x):
    with torch.no_grad():
        y = MODEL(x) * 2
        framejit.graph_break()
        return torch.linalg.cholesky(y[:4] - 100)


PROGRAMS = [no_grad, autocast, several, in_a_loop, left_changed, of_dtypes]


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)


class Watching:
    """A backend that notes the state around each run of a graph."""

    def __init__(self):
        self.seen = []

    def __call__(self, gm, examples):
        def run(*args):
            before = state()
            result = gm.forward(*args)
            self.seen.append((before, state()))
            return result

        return run


@pytest.mark.parametrize("program", PROGRAMS)
def test_graphs_change_no_state(program):
    backend = Watching()
    fast = framejit.optimize(program, backend=backend)
    for _ in range(2):
        before = state()
        program(torch.randn(5, 8))
        left = state()
        as_before(before)
        fast(torch.randn(5, 8))
        assert state() == left
        as_before(before)
    assert len(backend.seen) >= 4 and all(before == after for before, after in backend.seen)


def as_before(before):
    torch.set_grad_enabled(before[0])
    torch.set_default_dtype(before[4])


@pytest.mark.parametrize("program", [*PROGRAMS, raising])
def test_results_are_eager_s(program):
    pair = Pair(lambda: program, atol=2e-2, rtol=2e-2)
    for _ in range(3):
        pair.call(torch.randn(5, 8))
        torch.set_grad_enabled(True)


@pytest.mark.parametrize("program", PROGRAMS)
def test_our_own_backend_compiles_them(program):
    framejit.reset()
    fast = framejit.optimize(program, backend="fuse")
    for _ in range(2):
        x, before = torch.randn(5, 8), state()
        expected = program(x)
        as_before(before)
        got = fast(x)
        as_before(before)
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)
    reasons = [str(graph) for graph in framejit.inspect(fast).graphs if "runs as ATen" in str(graph)]
    assert not any("mode" in reason for reason in reasons), reasons


def test_a_graph_that_raises_leaves_the_state_of_its_place():
    def program(x, log):
        try:
            with torch.no_grad():
                y = MODEL(x) * 2
                log.append(torch.is_grad_enabled())
                z = torch.linalg.cholesky(y[:4] - 100)
                framejit.graph_break()
                return z + 1
        except RuntimeError:
            log.append(torch.is_grad_enabled())
            return MODEL(x)

    pair = Pair(lambda: program)
    for _ in range(3):
        pair.call(torch.randn(5, 8), [])


def begun_where_nothing_is_computed(x):
    with torch.autocast("cpu", enabled=False):
        with torch.inference_mode():
            framejit.graph_break()
            y = x + 0.5
        z = y.sin()
    return z


def begun_in_one_of_the_same(x):
    with torch.autocast("cpu", torch.bfloat16):
        framejit.graph_break()
        with torch.autocast("cpu", torch.bfloat16):
            with torch.inference_mode():
                framejit.graph_break()
                y = MODEL(x)
            z = y.sin()
        z = MODEL(z @ z.t() @ x)
    return z


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("program", [begun_where_nothing_is_computed, begun_in_one_of_the_same])
def test_blocks_of_autocast_that_only_nest_begin_and_end(program, backend):
    """They leave the depth alone changed, which decides when cached casts, and what they hold, are let go of."""
    framejit.reset()
    fast = framejit.optimize(program, backend=backend)
    for _ in range(3):
        x, before = torch.randn(5, 8), state()
        expected = program(x)
        got = fast(x)
        assert state() == before
        torch.testing.assert_close(got, expected, atol=2e-2, rtol=2e-2)
    with torch.autocast("cpu", torch.bfloat16):
        weight = torch.randn(8, 8, requires_grad=True)
        lives = weakref.ref(weight)
        (x @ weight).detach()
        del weight
    assert lives() is None
