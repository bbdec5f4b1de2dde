"""A Python number that was seen to change from call to call, so that its value is not assumed.

Arithmetic on it is kept as an expression over its source, comparisons guard only their outcome, and simple tensor
arithmetic takes it as an input of the graph.  Anything else asks for its value, which guards it.
"""
from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import BinarySource, CallSource, Source, TypedKey
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture
    from framejit.interpreter.frame import Frame

# Operations that can't raise on numbers, so that they may run later than the program says.
_SAFE = {"+": "add", "-": "sub", "*": "mul"}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
# Elementwise operations whose result has the tensor's shape whatever the number is.
_ELEMENTWISE = frozenset((operator.add, operator.sub, operator.mul, operator.truediv, operator.iadd, operator.isub, operator.imul, operator.itruediv,
                          operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge))


class ScalarValue(Value):
    """An int or float at `source`, now `value`."""

    source: Source

    def __init__(self, capture: "Capture", value: int | float, source: Source) -> None:
        self.capture, self.value, self.source = capture, value, source

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"{type(self.value).__name__} {self.source.name()!r}"

    def constant(self) -> Any:
        self.capture.add_guard(self.source, native.C_EQUALS, self.value)
        return self.value

    def is_constant(self) -> bool:
        return True  # it can be had, at the price of a guard

    def truth(self, tx: "Frame") -> bool:
        self.capture.add_guard(self.source, native.C_TRUTH, bool(self.value))
        return bool(self.value)

    def call_method(self, tx: "Frame", name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return ConstantValue(self.constant()).call_method(tx, name, args, kwargs)

    # ---- arithmetic -------------------------------------------------------------------------------

    def binary(self, symbol: str, other: Value, reflected: bool) -> Value | None:
        """`self symbol other` as an expression, or None where the value must be known."""
        number = _plain_number(other)
        if number is None or symbol not in _SAFE:
            return None
        function = getattr(operator, _SAFE[symbol])
        value = function(number, self.value) if reflected else function(self.value, number)
        return ScalarValue(self.capture, value, BinarySource(self.source, symbol, _SAFE[symbol], TypedKey(number), reflected))

    def compare(self, name: str, other: Value, reflected: bool) -> Value | None:
        """The outcome of a comparison, guarded in place of the value; None where the value must be known."""
        number = _plain_number(other)
        if number is None:
            return None
        function = getattr(operator, name)
        outcome = function(number, self.value) if reflected else function(self.value, number)
        self.capture.add_guard(BinarySource(self.source, _COMPARE[name], name, TypedKey(number), reflected), native.C_ID, outcome)
        return ConstantValue(outcome)

    # ---- graphs -----------------------------------------------------------------------------------

    def as_tensor(self, function: Any, tensor: TensorValue) -> Value:
        """What stands for the number in `function(tensor, number)`.

        A 0-d tensor input gives the same result as the number where type promotion ends at the tensor's dtype: for
        tensors of one dimension or more in float32, float64 and, for ints, int64 (torch type promotion rules).
        """
        dtype = tensor.fake.dtype
        same = dtype in (torch.float32, torch.float64) or (dtype == torch.int64 and type(self.value) is int and function not in (operator.truediv, operator.itruediv))
        fits = type(self.value) is float or -(2**63) <= self.value < 2**63
        if function not in _ELEMENTWISE or not same or not fits or tensor.fake.dim() == 0 or self.capture.static_scalars:
            return ConstantValue(self.constant())
        found = self.capture.scalar_inputs.get(self.source)
        if found is None:
            made = number_to_tensor(self.value)
            found = self.capture.scalar_inputs[self.source] = self.capture.graph.add_input(made, CallSource(self.source, number_to_tensor))
        return found


def number_to_tensor(number: int | float) -> torch.Tensor:
    return torch.tensor(number, dtype=torch.int64 if type(number) is int else torch.float64)


def _plain_number(value: Value) -> int | float | None:
    return value.value if isinstance(value, ConstantValue) and type(value.value) in (int, float) else None
