"""A graph break inside of inference mode: the code behind the graph goes on in the mode, and what resumes leaves it."""

import threading

import pytest
import torch
from torch import nn

import framejit
from framejit.environment.inference_modes import thread_modes
from framejit.events import subscribe

MODEL = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
LOG = []


def note(x):
    """What the thread's modes are, and what kind of tensor there is."""
    framejit.graph_break()
    LOG.append((thread_modes(), x.is_inference(), x.requires_grad))


def block(x):
    with torch.inference_mode():
        y = MODEL(x) * 2
        note(y)
        z = y.sin() + 1
    return y, z, MODEL(x)


@torch.inference_mode()
def decorated(x):
    y = MODEL(x)
    note(y)
    return y * 2, x + 1


@torch.inference_mode
def decorated_bare(x):
    y = MODEL(x)
    note(y)
    return MODEL(y)


def calls_decorated(x):
    y = decorated(x * 2)[0]
    return y, MODEL(x)


def twice(x):
    with torch.inference_mode():
        y = x * 2
        note(y)
        y = y + 1
        note(y)
        y = y + MODEL(x)
    return y, x * 3


def begun_behind_operations(x):
    y = MODEL(x)
    with torch.inference_mode():
        note(x)
        z = MODEL(x) + 1
    return y.sum() + MODEL(x), z


def at_its_beginning_and_end(x):
    with torch.inference_mode():
        note(x)
        z = x * 2
        note(z)
    return z


def nested(x):
    with torch.inference_mode():
        y = MODEL(x)
        with torch.inference_mode(False):
            z = MODEL(x) * 2
            note(z)
            z = z + MODEL(x)
            with torch.inference_mode():
                w = MODEL(x)
                note(w)
                w = w * 2
            note(w)
        y = y + z
        note(y)
    return y, z, w, MODEL(x)


def off(x):
    with torch.inference_mode(False):
        y = MODEL(x)
        note(y)
        y = y * 2
    return y, MODEL(x)


def no_grad_around(x):
    with torch.no_grad():
        y = MODEL(x)
        with torch.inference_mode():
            z = MODEL(x)
            note(z)
            z = z + y
        note(y)
        w = MODEL(x)
    return y, z, w, MODEL(x)


def grad_around_no_grad(x):
    with torch.no_grad(), torch.enable_grad():
        with torch.inference_mode():
            z = MODEL(x)
            note(z)
        w = MODEL(x)
        note(w)
    return z, w


def grad_inside(x):
    with torch.inference_mode():
        y = MODEL(x)
        with torch.enable_grad():
            z = MODEL(x)
            note(z)
            z = z * 2
        note(z)
        torch.set_grad_enabled(True)
        w = MODEL(x) + z
        note(w)
    return y, z, w, MODEL(x)


def grad_set_before(x):
    torch.set_grad_enabled(False)
    with torch.inference_mode():
        y = MODEL(x)
        note(y)
    z = MODEL(x)
    note(z)
    torch.set_grad_enabled(True)
    return y, z, MODEL(x)


def with_autocast(x):
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        y = MODEL(x)
        with torch.autocast("cpu", enabled=False):
            z = MODEL(x)
            note(z)
        y = y + MODEL(x)
        note(y)
    return y, z, MODEL(x)


def autocast_left_inside(x):
    cast = torch.autocast("cpu", torch.bfloat16)
    with torch.inference_mode():
        cast.__enter__()
        y = MODEL(x)
        note(y)
        cast.__exit__(None, None, None)
    return y, MODEL(x)


def autocast_flag_left_on_inside(x):
    with torch.inference_mode():
        torch.set_autocast_enabled("cpu", True)
        y = MODEL(x)
        note(y)
        y = y + MODEL(x)
    note(y)
    return y, MODEL(x)


def default_dtype_inside(x):
    with torch.inference_mode():
        torch.set_default_dtype(torch.float64)
        y = torch.ones(2)
        note(y)
        y = y + torch.ones(2)
    z = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return y, z


def in_a_loop(x):
    results = []
    for n in range(3):
        with torch.inference_mode():
            y = MODEL(x + n)
            note(y)
        results.append(y + 1)
    return results, MODEL(x)


def around_a_loop(x):
    with torch.inference_mode():
        for _ in range(3):
            x = MODEL(x)
            note(x)
        x = x * 2
    return x


def returned_from(x):
    with torch.inference_mode():
        y = MODEL(x)
        note(y)
        return y * 2


def raising(x):
    with torch.inference_mode():
        y = MODEL(x)
        note(y)
        if y.numel() > 1:
            raise ValueError("inside")
    return y


def caught(x):
    try:
        raising(x)
    except ValueError as e:
        y = MODEL(x)
        LOG.append(str(e))
    return y, thread_modes()


def graph_raises(x):
    try:
        with torch.inference_mode():
            y = MODEL(x)
            note(y)
            with torch.inference_mode():
                z = torch.linalg.cholesky(y @ y.t() - 100)
    except RuntimeError:
        return MODEL(x)
    return z


def graph_raises_in_several(x):
    try:
        with torch.inference_mode():
            y = MODEL(x)
            with torch.inference_mode():
                z = torch.linalg.cholesky(y @ y.t() - 100)
    except RuntimeError:
        note(x)
        return MODEL(x)
    return z


def graph_raises_behind(x):
    try:
        with torch.inference_mode():
            with torch.inference_mode(False):
                y = MODEL(x)
                note(y)
        with torch.inference_mode():
            with torch.inference_mode():
                z = torch.linalg.cholesky(y @ y.t() - 100)
    except RuntimeError:
        note(x)
        return MODEL(x)
    return z


def managers_kept(x):
    manager = torch.inference_mode()
    with manager:
        y = MODEL(x)
        note(y)
    with manager:
        z = MODEL(x) * 2
        note(z)
    return y, z, MODEL(x)


def manager_returned(x):
    manager = torch.inference_mode()
    with manager:
        y = MODEL(x)
    note(y)
    return y, MODEL(x), type(manager)


def entered_by_hand(x):
    manager = torch.inference_mode()
    manager.__enter__()
    y = MODEL(x)
    note(y)
    z = y + 1
    manager.__exit__(None, None, None)
    return y, z, MODEL(x)


def left_twice(x):
    manager = torch.inference_mode()
    manager.__enter__()
    y = MODEL(x)
    note(y)
    manager.__exit__(None, None, None)
    w = MODEL(x)
    manager.__exit__(None, None, None)
    return y, w, MODEL(x)


def left_out_of_order(x):
    outer, inner = torch.inference_mode(), torch.inference_mode(False)
    outer.__enter__()
    y = MODEL(x)
    note(y)
    inner.__enter__()
    z = MODEL(x)
    outer.__exit__(None, None, None)
    w = MODEL(x)
    note(w)
    inner.__exit__(None, None, None)
    note(w)
    v = MODEL(x)
    torch._C._InferenceMode(False)
    return y, z, w, v


def existing_left_out_of_order(x):
    outer, inner = torch.inference_mode(), torch.inference_mode(False)
    outer.__enter__()
    inner.__enter__()
    y = MODEL(x)
    note(y)
    outer.__exit__(None, None, None)
    z = MODEL(x)
    note(z)
    inner.__exit__(None, None, None)
    note(z)
    with torch.inference_mode(False):
        note(x)
        return y, z


def writes(x):
    total = torch.zeros(8)
    with torch.inference_mode():
        y = MODEL(x)
        total += y.sum(0)
        note(y)
        total += 1
        y += 1
    total += 1
    return total, y


PROGRAMS = [
    block, decorated, decorated_bare, calls_decorated, twice, begun_behind_operations, at_its_beginning_and_end, nested,
    off, no_grad_around, grad_around_no_grad, grad_inside, grad_set_before, with_autocast, autocast_left_inside,
    autocast_flag_left_on_inside, default_dtype_inside, in_a_loop, around_a_loop, returned_from, raising, caught,
    graph_raises, graph_raises_in_several, graph_raises_behind, managers_kept, manager_returned, entered_by_hand,
    left_twice, left_out_of_order, existing_left_out_of_order, writes,
]
FOLLOWED = [program for program in PROGRAMS if program not in (
    autocast_flag_left_on_inside, left_out_of_order, existing_left_out_of_order, graph_raises, graph_raises_in_several,
    graph_raises_behind, raising, caught,
)]


def tensors(found):
    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (tuple, list)):
        for part in found:
            yield from tensors(part)


def outcome(fn, x):
    """The result or error of a call, what of it can be told, the gradients, and the modes behind it; the modes are put
    back."""
    LOG.clear()
    MODEL.zero_grad()
    with torch.inference_mode(False):
        x = x.clone().requires_grad_()
    with torch.inference_mode(torch.is_inference_mode_enabled()):
        dtype, autocast = torch.get_default_dtype(), torch.is_autocast_enabled("cpu")
        grad = torch.is_grad_enabled()
        try:
            result = fn(x)
        except (ValueError, RuntimeError) as e:
            result = f"{type(e).__name__}: {e}"
        modes = (
            thread_modes(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled(),
        )
        torch.set_default_dtype(dtype)
        torch.set_autocast_enabled("cpu", autocast)
        torch.set_grad_enabled(grad)
    found = [*tensors(result)]
    told = [(t.is_inference(), t.requires_grad, t.dtype, t.is_leaf) for t in found]
    with torch.inference_mode(False), torch.enable_grad():
        wanted = [t.float().sum() for t in found if t.grad_fn is not None and not t.is_inference()]
        if wanted:
            sum(wanted).backward()
    grads = [p.grad for p in (x, *MODEL.parameters())]
    return [t.detach().clone() for t in found], told, modes, [*LOG], grads, result if isinstance(result, str) else None


def same(got, expected, **close):
    torch.testing.assert_close(got[0], expected[0], **close)
    assert got[1:4] == expected[1:4]
    for one, other in zip(got[4], expected[4]):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, **close)
    assert got[5] == expected[5]


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_all_is_as_in_eager(program, backend, around):
    framejit.reset()
    fast = framejit.optimize(program, backend=backend)
    for _ in range(3):
        x, before = torch.randn(5, 8), thread_modes()
        with around():
            expected = outcome(program, x)
            got = outcome(fast, x)
        same(got, expected, atol=2e-2, rtol=2e-2)
        assert thread_modes() == before


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda m: m.__name__)
def test_calls_in_other_modes_share_no_wrong_entries(around):
    framejit.reset()
    fast = framejit.optimize(nested, backend="eager")
    for mode in (torch.enable_grad, around, torch.no_grad, torch.inference_mode, torch.enable_grad):
        x = torch.randn(5, 8)
        with mode():
            same(outcome(fast, x), outcome(nested, x))


def test_threads():
    framejit.reset()
    fast = framejit.optimize(block, backend="eager")
    found = []

    def call(mode):
        with mode():
            before = thread_modes()
            y, z, w = fast(torch.ones(5, 8))
            found.append((y.is_inference(), z.is_inference(), w.requires_grad, thread_modes() == before))

    for mode in (torch.enable_grad, torch.no_grad):
        thread = threading.Thread(target=call, args=(mode,))
        thread.start()
        thread.join()
    call(torch.enable_grad)
    assert found == [(True, True, True, True), (True, True, False, True), (True, True, True, True)]


@pytest.mark.parametrize("program", FOLLOWED, ids=lambda program: program.__name__)
def test_only_the_program_s_own_breaks(program):
    framejit.reset()
    fast = framejit.optimize(program, backend="eager")
    broken = []
    unsubscribe = subscribe(lambda event: broken.append(event) if event.kind == "graph_break" else None)
    try:
        outcome(fast, torch.randn(5, 8))
    finally:
        unsubscribe()
    assert {event.fields["function"] for event in broken} == {"note"}


@pytest.mark.parametrize("program", FOLLOWED, ids=lambda program: program.__name__)
def test_graphs_change_no_modes(program):
    seen = []

    def backend(gm, examples):
        def run(*args):
            before = thread_modes()
            result = gm.forward(*args)
            seen.append((before, thread_modes()))
            return result

        return run

    framejit.reset()
    outcome(framejit.optimize(program, backend=backend), torch.randn(5, 8))
    assert seen and all(before == after for before, after in seen)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_modes_that_nothing_holds_end(backend):
    def program(x):
        y = x * 2
        torch.inference_mode().__enter__()
        inside = thread_modes()
        return y, inside, x + 1

    framejit.reset()
    fast = framejit.optimize(program, backend=backend)
    for _ in range(2):
        x = torch.randn(5, 8)
        same(outcome(fast, x), outcome(program, x))
        assert fast(x)[1] == program(x)[1]
