"""Functions of Python's on numbers that were read from tensors: `math.sqrt(number)`, `number ** 0.5`,
`round(number, 2)`.

The graph calls them (`backends/number_calls.py`). On GPUs it would wait for the number there; it breaks instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.number_calls import FLOATS, OF_NUMBERS, WHOLE
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

_TESTS: Final[dict[Callable[..., Any], Callable[..., Any]]] = {
    math.isnan: torch.isnan, math.isinf: torch.isinf, math.isfinite: torch.isfinite
}
NAMES: Final = {**{function: name for name, function in FLOATS.items()}, **dict.fromkeys(_TESTS, "")}
"""The functions that are called so, and what the graph calls them."""


def call_on_read(function: Callable[..., Any], name: str, operands: Sequence[Value]) -> Value | None:
    """The result of a function of numbers, called by the graph; None where none was read, or the graph can't call
    it."""
    read = next((value for value in operands if isinstance(value, ReadNumberValue)), None)
    if read is None:
        return None
    if function in _TESTS:
        made = read.capture.graph.call(_TESTS[function], [read.tensor])
        assert isinstance(made, TensorValue)
        return read.like(made, (0, 1))
    graph, numbers, parts = read.capture.graph, list[Value](), list[str]()
    for value in operands:
        if isinstance(value, ReadNumberValue):
            if value.cls is bool or value.is_either and name in WHOLE or value.tensor.fake.device.type != "cpu":
                return None
            parts.append(f"x{len(numbers)}")
            numbers.append(value.tensor)
        elif isinstance(value, ConstantValue) and type(value.value) in (int, float):
            parts.append(repr(value.value))
        elif isinstance(value, SymNumberValue):
            given = value.in_dtype(torch.float64 if value.python_type() is float else torch.int64)
            if given is None:
                return None
            parts.append(f"x{len(numbers)}")
            numbers.append(given)
        else:
            return None
    gives_int = name in WHOLE and all(value.python_type() is int for value in operands)
    text = f"{name}({', '.join(parts)})"
    made = graph.call(OF_NUMBERS, [ConstantValue(text), ListValue(numbers), ConstantValue(gives_int)])
    assert isinstance(made, TensorValue)
    return read.like(made, (-(2**63), 2**63 - 1) if gives_int else (-math.inf, math.inf))
