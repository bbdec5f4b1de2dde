"""A call that was captured keeps nothing of the user's alive, also where the capture met exceptions, started again or
failed: no collection is needed."""

import functools
import gc
import weakref

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import framejit


class Holder:
    pass


def plain(x, o):
    return x + 1


def raising(x, o):
    try:
        raise ValueError(o)
    except ValueError:
        return x + 1


def raising_below(x, o):
    def thrower(value):
        raise ValueError(value)

    try:
        thrower(o)
    except ValueError as e:
        return x + len(e.args)


def looping(x, o):
    for item in iter([o, o]):
        x = x + (item is o)
    return x


def generating(x, o):
    def numbers(held):
        try:
            yield 1
            yield 2
        except GeneratorExit:
            del held

    return x + sum(numbers(o))


def half_a_generator(x, o):
    def numbers(held):
        yield held
        yield held

    for item in numbers(o):
        return x + (item is o)


def breaking(x, o):
    x = x + 1
    framejit.graph_break()
    return x + hasattr(o, "missing")


def breaking_below(x, o):
    def inner(value):
        framejit.graph_break()
        return value

    return x + len(sorted([1, 2], key=lambda v: (inner(o), v)[1]))


def unknown(x, o):
    x = x + 1
    id(o).bit_length()
    return x * 2


def opaque(x, o):
    torch._C._log_api_usage_once("framejit.test")
    return x + getattr(o, "nothing", 1)


def uncapturable(x, o):
    names = locals()
    return x + len(names)


def leaving(x, o):
    raise KeyError("left")


def leaving_from_below(x, o):
    def inner(value):
        raise KeyError(value)

    y = x + 1
    return y, inner(o)


def leaving_from_below_a_block(x, o):
    def inner(value):
        raise KeyError(value)

    try:
        y = x + 1
        return y, inner(o)
    finally:
        x = x * 2


class Leaving(torch.nn.Module):
    def forward(self, x, o):
        raise KeyError(o)


@pytest.mark.parametrize(
    "f",
    [
        plain,
        raising,
        raising_below,
        looping,
        generating,
        half_a_generator,
        breaking,
        breaking_below,
        unknown,
        opaque,
        uncapturable,
        leaving,
        leaving_from_below,
        leaving_from_below_a_block,
        Leaving(),
    ],
)
def test_arguments_die_with_the_call(f):
    compiled = framejit.optimize(f, backend="eager")
    with_collector = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for call in (f, compiled, compiled):
            x, o = torch.zeros(1), Holder()
            dead = [weakref.ref(x), weakref.ref(o)]
            try:
                call(x, o)
            except KeyError:
                pass
            del x, o
            assert [r() for r in dead] == [None, None], call
    finally:
        if with_collector:
            gc.enable()


def of_gradient(w, x):
    return torch.func.grad(lambda v: (x @ v).sum())(w)


def of_rows(w, x):
    return torch.vmap(lambda row: (row * w).sum())(x)


def of_pulled_back(w, x):
    result, pull = torch.func.vjp(lambda v: x @ v, w)
    return pull(torch.ones_like(result))


def of_pushed_forward(w, x):
    return torch.func.jvp(lambda v: torch.sin(x @ v), (w,), (w,))


def of_checkpoint(w, x):
    return checkpoint(lambda v: (x @ v).sin(), w, use_reentrant=False)


def of_branch(w, x):
    return torch.cond(w.sum() > 0, lambda v: (x @ v).sin(), lambda v: (x @ v).cos(), (w,))


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "f", [of_gradient, of_rows, of_pulled_back, of_pushed_forward, of_checkpoint, of_branch]
)
def test_what_functions_in_the_graph_close_over_dies(f, backend):
    compiled = framejit.optimize(f, backend=backend)
    w, x = torch.randn(3), torch.randn(4, 3)
    dead = [weakref.ref(w), weakref.ref(x)]
    compiled(w, x)
    del w, x
    gc.collect()
    assert [r() for r in dead] == [None, None]


@functools.partial(framejit.optimize, backend="eager")
def shared(x, o):
    for p in o.parameters():
        x = x + p.sum()
    return x


def test_modules_die_too():
    gc.collect()
    gc.disable()
    try:
        module = torch.nn.Linear(2, 2)
        dead = weakref.ref(module)
        shared(torch.zeros(1), module)
        del module
        assert dead() is None
    finally:
        gc.enable()


def test_cells_of_functions_that_the_frame_hook_has_captured():
    """Code that several functions share has entries of its own, which hold nothing of the function that they were
    captured from."""

    def fn(x):
        framejit.graph_break()

        def inner(a):
            return a * 2 + x

        return framejit.disable(lambda: inner(x + 1))()

    compiled = framejit.optimize(fn, backend="eager")
    for _ in range(3):
        gc.collect()
        gc.disable()
        try:
            x = torch.arange(3.0)
            ref = weakref.ref(x)
            assert torch.equal(compiled(x), x * 3 + 2)
            del x
            assert ref() is None
        finally:
            gc.enable()
