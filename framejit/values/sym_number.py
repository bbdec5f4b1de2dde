"""A Python number that was seen to change from call to call, so that its value is not assumed.

Arithmetic on it is kept as an expression over its source, comparisons guard only their outcome, and simple tensor
arithmetic takes it as an input of the graph.  Anything else asks for its value, which guards it.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.computed_numbers import Answer, is_reached, question_at
from framejit.guards.sources import BinarySource, CallSource, PairSource, Source, TypedKey
from framejit.guards.thread_questions import has_saved_tensor_hooks
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from collections.abc import Callable

    from framejit.values.context import Capture, Frame
    from framejit.values.tensors.tensor import TensorValue

# What can't raise on numbers, or is guarded not to, so that it may run later than the program says.
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow"}
_DIVISIONS = ("/", "//", "%")
_LARGE = 1e50
GREATEST_EXPONENT = 4
"""Powers of numbers up to the one, with exponents up to the other, are finite."""
COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
# Elementwise operations whose result has the tensor's shape whatever the number is.
ELEMENTWISE = frozenset(
    (
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.iadd,
        operator.isub,
        operator.imul,
        operator.itruediv,
        operator.lt,
        operator.le,
        operator.eq,
        operator.ne,
        operator.gt,
        operator.ge,
    )
)
_IN_FLOAT32 = frozenset((operator.add, operator.sub, operator.mul, operator.truediv))


class SymNumberValue(Value):
    """An int or float at `source`, now `value`."""

    source: Source

    def __init__(
        self, capture: Capture, value: int | float, source: Source, leaves: tuple[SymNumberValue, ...] = ()
    ) -> None:
        self.capture, self.value, self.source = capture, value, source
        self.leaves = leaves or (self,)  # what must be guarded to know the value

    def python_type(self) -> type:
        return type(self.value)

    def describe(self) -> str:
        return f"{type(self.value).__name__} {self.source.name()!r}"

    def constant(self) -> Any:
        for leaf in self.leaves:
            leaf.assume()
        return self.value

    def assume(self) -> None:
        """Guard what the value is read from to be what it is now. Breaks the graph where that would be another number
        in each call."""
        if self.capture.is_ever_new(self.source.name()):
            raise Unsupported(
                f"{self.describe()}, which is another number in each call, has to be known", "FJ121",
                "keep it in a tensor, or use it outside the compiled function",
            )
        self.capture.add_guard(self.source, native.C_EQUALS, self.value)

    def is_constant(self) -> bool:
        return True  # it can be had, at the price of a guard

    def truth(self, frame: Frame) -> bool:
        truth = bool(self.value)
        if is_reached(self.source):
            self.capture.add_guard(self.source, native.C_TRUTH, truth)
        else:
            guard_answer(self.capture, CallSource(self.source, bool), truth)
        return truth

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = self.as_float() if name == "__float__" and not args else None
        if made is not None:
            return made
        return ConstantValue(self.constant()).call_method(frame, name, args, kwargs)

    # ---- arithmetic -------------------------------------------------------------------------------

    def binary(self, symbol: str, other: Value, reflected: bool) -> Value | None:
        """`self symbol other` as an expression, or None where the value must be known."""
        a, b = (other, self) if reflected else (self, other)
        if symbol not in _OPERATIONS or not _is_safe(symbol, a, b):
            return None
        name = _OPERATIONS[symbol]
        function = getattr(operator, name)
        if isinstance(a, SymNumberValue) and isinstance(b, SymNumberValue):
            return SymNumberValue(
                self.capture, function(a.value, b.value), PairSource(a.source, b.source, symbol, name),
                a.leaves + b.leaves,
            )
        number = _plain_number(other)
        if number is None:
            return None
        value = function(number, self.value) if reflected else function(self.value, number)
        return SymNumberValue(
            self.capture, value, BinarySource(self.source, symbol, name, TypedKey(number), reflected),
            self._inner_leaves(),
        )

    def _inner_leaves(self) -> tuple[SymNumberValue, ...]:
        """The leaves an expression over this value has: none of its own, where a guard can reach the expression."""
        return () if self.leaves == (self,) else self.leaves

    def compare(self, name: str, other: Value, reflected: bool) -> Value | None:
        """The outcome of a comparison, guarded in place of the value; None where the other is no number, or none whose
        place is known."""
        function, number = getattr(operator, name), _plain_number(other)
        if number is not None:
            outcome = function(number, self.value) if reflected else function(self.value, number)
            place: Source = BinarySource(self.source, COMPARE[name], name, TypedKey(number), reflected)
        elif isinstance(other, SymNumberValue):
            a, b = (other, self) if reflected else (self, other)
            outcome = function(a.value, b.value)
            place = PairSource(a.source, b.source, COMPARE[name], name)
        else:
            return None
        guard_answer(self.capture, place, outcome)
        return ConstantValue(outcome)

    def surely(self, name: str, number: float) -> bool:
        """Whether a comparison with a number holds, and is guarded to."""
        if not getattr(operator, name)(self.value, number):
            return False
        return self.compare(name, ConstantValue(number), False) is not None

    def called(self, function: Callable[[Any], int | float]) -> SymNumberValue:
        """What a function gives that raises for no number of this kind."""
        return SymNumberValue(
            self.capture, function(self.value), CallSource(self.source, function), self._inner_leaves()
        )

    def as_float(self) -> SymNumberValue | None:
        """`float()` of it; None where the value must be known."""
        if type(self.value) is float:
            return self
        return self.called(float) if self._stays_small() else None

    def absolute(self) -> Value | None:
        """`abs()` of it; None where the value must be known."""
        return self.called(abs)

    def whole(self, function: Callable[[float], int]) -> Value | None:
        """The whole number that `function` makes of it; None where the value must be known."""
        if type(self.value) is int:
            return self
        if not self.surely("ge", -_LARGE) or not self.surely("le", _LARGE):
            return None
        made = self.called(function)
        if self.capture.dynamic.never or not is_reached(made.source) or not 0 <= made.value <= LARGEST:
            return made
        return SymIntValue(self.capture.sizes.number(int(made.value), made.source), made.source, int(made.value))

    # ---- graphs -----------------------------------------------------------------------------------

    def as_tensor(self, function: Any, tensor: TensorValue) -> Value:
        """The value that an operation on a tensor is given in place of the number: `function(tensor, number)`.

        A 0-d tensor of the tensor's own dtype gives the same result, because torch converts the number to that dtype
        too, in float32, float64 and, for ints, int64; narrower floats compute with the number in float32. Beside ints a
        float makes torch compute in its default dtype.
        """
        exact = tensor.fake.dtype.is_floating_point or (
            type(self.value) is int and function not in (operator.truediv, operator.itruediv)
        )
        if function in _IN_FLOAT32 and tensor.fake.dtype in (torch.float16, torch.bfloat16):
            return self  # as an argument (number_arguments.py)
        dtype = tensor.fake.dtype
        if type(self.value) is float and not dtype.is_floating_point and not dtype.is_complex:
            dtype, exact = torch.get_default_dtype(), True  # in which torch computes with both
        is_power = function is operator.pow and tensor.fake.dtype.is_floating_point
        made = self.in_dtype(dtype) if (function in ELEMENTWISE or is_power) and exact else None
        return ConstantValue(self.constant()) if made is None else made

    def in_dtype(self, dtype: torch.dtype) -> Value | None:
        """The number as a tensor without dimensions, an input of the graph; None for dtypes that are not meant for
        it, and where hooks on what autograd saves would see it."""
        make = _TO_TENSOR.get(dtype)
        if make is None or torch.is_grad_enabled() and has_saved_tensor_hooks(torch):
            return None
        if type(self.value) is int and not self._stays_small():
            return None
        key = (self.source, make)
        found = self.capture.scalar_inputs.get(key)
        if found is None:
            found = self.capture.scalar_inputs[key] = self.capture.graph.add_input(
                make(self.value), CallSource(self.source, make)
            )
        return found

    def _stays_small(self) -> bool:
        """Whether it is an int that torch takes, guarded: torch raises for greater ones, also beside floats."""
        if not fits_int64(self.value):
            return False
        guard_answer(self.capture, CallSource(self.source, fits_int64), True)
        return True


def guard_answer(capture: Capture, place: Source, answer: bool) -> None:
    """Guard that what is computed at a place, True or False, is this."""
    if is_reached(place):
        capture.add_guard(place, native.C_ID, answer)
        return
    read, question = question_at(place)
    if read:  # else all sizes in it are known by now
        capture.add_guard(read[0], native.C_HOLDS, Answer(question, answer, place.name()), read[1:])


def fits_int64(number: int | float) -> bool:
    """Whether a number is within the range of int64."""
    return -(2**63) <= number < 2**63


def to_float32(number: int | float) -> torch.Tensor:
    """A number as a 0-d tensor of float32 on the CPU, called by replacement code."""
    return torch.tensor(number, dtype=torch.float32)


def to_float64(number: int | float) -> torch.Tensor:
    """A number as a 0-d tensor of float64 on the CPU, called by replacement code."""
    return torch.tensor(number, dtype=torch.float64)


def to_int64(number: int | float) -> torch.Tensor:
    """A number as a 0-d tensor of int64 on the CPU, called by replacement code. Raises RuntimeError for one that does
    not fit."""
    return torch.tensor(number, dtype=torch.int64)


_TO_TENSOR = {torch.float32: to_float32, torch.float64: to_float64, torch.int64: to_int64}


def _is_safe(symbol: str, a: Value, b: Value) -> bool:
    """Whether an operation on two numbers does not raise, now and later: what there is to ask is guarded."""
    if symbol not in _DIVISIONS and a.python_type() is b.python_type() is int:
        return symbol != "**"
    if not _fits_a_float(a) or not _fits_a_float(b):
        return False
    if symbol in _DIVISIONS:
        return b.surely("ne", 0) if isinstance(b, SymNumberValue) else bool(_plain_number(b))
    return symbol != "**" or _is_plain_power(a, b)


def _fits_a_float(value: Value) -> bool:
    """Whether it is a float, or an int that beside floats becomes one: for greater ones Python raises."""
    if value.python_type() is float:
        return True
    if isinstance(value, SymNumberValue):
        return value._stays_small()
    number = _plain_number(value)
    return number is not None and abs(number) <= LARGEST


def _is_plain_power(base: Value, exponent: Value) -> bool:
    """Whether a power is a float, and not too large for one."""
    power = _plain_number(exponent)
    if isinstance(exponent, SymNumberValue):  # of numbers from 0 to 1, as in bias corrections
        return exponent.surely("ge", 0) and _is_guarded(base, "ge", 0) and _is_guarded(base, "le", 1)
    if not isinstance(base, SymNumberValue) or power is None or not 0 <= power <= GREATEST_EXPONENT:
        return False
    return base.surely("le", _LARGE) and base.surely("ge", -_LARGE if power == int(power) else 0)


def _is_guarded(value: Value, name: str, number: float) -> bool:
    """Whether a comparison with a number holds, of a number that is known, or is guarded to."""
    if isinstance(value, SymNumberValue):
        return value.surely(name, number)
    known = _plain_number(value)
    return known is not None and bool(getattr(operator, name)(known, number))


def _plain_number(value: Value) -> int | float | None:
    return value.value if isinstance(value, ConstantValue) and type(value.value) in (int, float) else None


@wraps(int, float)
def _symbolic_number(capture: Capture, obj: Any, source: Source) -> Value | None:
    """A number that is not assumed, because it was seen to change or because all are left open."""
    if source.name() not in capture.changing and not capture.dynamic.leaves_open(obj, source):
        return None
    if type(obj) is int:
        capture.check_item(source, obj)
    capture.add_guard(source, native.C_TYPE, type(obj))
    if type(obj) is int and not capture.dynamic.never and 0 <= obj <= LARGEST:
        return SymIntValue(capture.sizes.number(obj, source), source, obj)
    return SymNumberValue(capture, obj, source)
