"""Numbers that objects written in C compute when they are asked: left open once they have changed, of whatever sign."""

import ctypes
import datetime
import types

import pytest
import torch

import framejit

WHOLE = (-1066061908, 1740897091, -233450743, -666478812, -1053127592, 3, 0, -1)

OBJECTS = {
    "an int of C": lambda v: (ctypes.c_int(v), "value"),
    "a double of C": lambda v: (ctypes.c_double(v / 7), "value"),
    "days": lambda v: (datetime.timedelta(days=v // 2000), "days"),
    "a slot": lambda v: (types.SimpleNamespace(value=v / 7), "value"),
    "a part of a complex number": lambda v: (complex(v / 7, 1), "real"),
    "a bound": lambda v: (slice(v, 1), "start"),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_numbers_that_change(make):
    def fn(c, x):
        return x * getattr(c, name), getattr(c, name)

    name = make(1)[1]
    optimized = framejit.optimize(fn)
    x = torch.ones(2, dtype=torch.float64)
    for value in WHOLE:
        expected, got = fn(make(value)[0], x), optimized(make(value)[0], x)
        assert repr(expected) == repr(got)
