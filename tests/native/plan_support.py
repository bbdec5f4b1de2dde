"""Steps of plans that are written by hand, and kernels in Python for them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from framejit._native import Value

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
