"""Steps of plans that are written by hand, and kernels in Python for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from framejit._native import Plan, Value

CPU = torch.device("cpu")
SIGNATURE = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64), ctypes.c_int64, ctypes.c_int64
)


class Kernel:
    """A CPU kernel written in Python: `body(pointers, ints, begin, end)`."""

    def __init__(self, body: Callable[[Any, Any, int, int], None]) -> None:
        self._callback = SIGNATURE(body)
        address = ctypes.cast(self._callback, ctypes.c_void_p).value
        assert address is not None
        self.address = address


def floats(address: int) -> Any:
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_float))


def no_fallback(*inputs):
    raise AssertionError("the fallback was called")


def empty(slot: int, *sizes: int, dtype: torch.dtype = torch.float32) -> tuple[Any, ...]:
    return ("empty", slot, sizes, torch.empty(sizes, device="meta").stride(), dtype, CPU)


def call(callable: Any, *args: Any, to: Any, **kwargs: Any) -> tuple[Any, ...]:
    return ("call", callable, args, kwargs or None, to)


def value(slot: int) -> Value:
    return Value(slot)


def _add_relu_double(pointers, ints, begin, end):
    x, y, out = (floats(pointers[i]) for i in range(3))
    for i in range(begin, end):
        out[i] = max(x[i] + y[i], 0.0) * 2


def _count_up(pointers, ints, begin, end):
    out = floats(pointers[0])
    for i in range(begin, end):
        out[i] = ints[0] + ints[1] * i


ADD_RELU_DOUBLE = Kernel(_add_relu_double)
COUNT_UP = Kernel(_count_up)


def plan(n_inputs: int, n_values: int, steps: list[Any], outputs: list[Any], **options: Any) -> Plan:
    return Plan(n_inputs, n_values, steps, outputs, **{"fallback": no_fallback, **options})
