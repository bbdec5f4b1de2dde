"""A call that was captured keeps nothing of the user's alive, also where the capture met exceptions, started again or
failed: no collection is needed."""

import functools
import gc
import weakref

import pytest
import torch

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
