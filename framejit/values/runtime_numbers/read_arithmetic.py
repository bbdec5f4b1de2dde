"""Arithmetic, comparisons and choices of numbers of which one was read from a tensor, as operations of the graph."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import fold
from framejit.values.runtime_numbers.number_calls import call_on_read
from framejit.values.runtime_numbers.read_number import LARGEST_EXACT, ReadNumberValue, is_there
from framejit.values.runtime_numbers.size_number import as_float
from framejit.values.sym_int import SymIntValue, plain_or_size
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_ARITHMETIC: Final = frozenset((operator.add, operator.sub, operator.mul, operator.truediv, operator.pow))
_FLOATS: Final = frozenset((operator.add, operator.sub, operator.mul, operator.truediv))
_OF_INTS: Final = frozenset((operator.floordiv, operator.mod))
_OF_BITS: Final = {
    operator.and_: "bits_and", operator.or_: "bits_or", operator.xor: "bits_xor", operator.lshift: "lshift",
    operator.rshift: "rshift",
}
_CALLED: Final = {operator.pow: "pow", operator.floordiv: "floordiv", operator.mod: "mod", **_OF_BITS}
"""What the graph leaves to Python where it has no operation that gives the same, and calls it."""
_SUMS: Final = frozenset((operator.add, operator.sub))
_UNARY: Final = frozenset((operator.neg, operator.pos, abs))
_SMALL: Final = 2**31
"""What an int is asserted to be below before it is computed with, where its dtype holds greater ones."""
_SURELY_POSITIVE: Final = 1e-9
"""More than what rounding comes to."""


def compute(frame: Frame, function: Callable[..., Any], *operands: Value) -> Value | None:
    """`function` of numbers of which one was read from a tensor; None where it was not, or the other operand is a
    tensor."""
    read = next((value for value in operands if isinstance(value, ReadNumberValue)), None)
    if read is None or any(isinstance(value, TensorValue) for value in operands):
        return None
    if read.cls is float and function in _FLOATS:
        operands = tuple(_beside_float(read, value) for value in operands)
    if function in _OF_BITS:
        return call_on_read(function, _CALLED[function], operands)
    if function not in _ARITHMETIC and function not in _UNARY and function not in _OF_INTS:
        return None
    classes = [_class_of(value, read) for value in operands]
    if None in classes or function is not operator.truediv and _gives_either(operands, classes):
        read.must_be_known()
    if all(cls is int for cls in classes):
        return _compute_ints(frame, function, read, operands)
    if function in _OF_INTS:
        return _called(function, read, operands)
    return _compute_floats(frame, function, read, operands)


def _beside_float(read: ReadNumberValue, value: Value) -> Value:
    """What Python computes with beside a float: an int that is not assumed becomes one."""
    if isinstance(value, SymIntValue):
        return _float_of(read, value) or value
    found = value.as_float() if isinstance(value, SymNumberValue) else None
    return value if found is None else found


def _float_of(read: ReadNumberValue, size: SymIntValue) -> Value | None:
    """An int that is not assumed, as a float that replacement code computes; None where that can't be done."""
    return None if size.is_of_data() else as_float(read.capture, size)


def _called(function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]) -> Value:
    """The result of an operator that the graph leaves to Python."""
    found = call_on_read(function, _CALLED[function], operands) if function in _CALLED else None
    if found is None:
        read.must_be_known()
    assert found is not None
    return found


def choose(frame: Frame, function: Callable[..., Any], numbers: Sequence[Value]) -> Value | None:
    """`max` or `min` of numbers of which one was read from a tensor; None where none was, or others are no numbers."""
    if not any(isinstance(number, ReadNumberValue) for number in numbers):
        return None
    chosen = numbers[0]
    for number in numbers[1:]:
        found = _chosen(frame, function, chosen, number)
        if found is None:
            return None
        chosen = found
    return chosen


def _chosen(frame: Frame, function: Callable[..., Any], first: Value, second: Value) -> Value | None:
    """The first number, unless the second one is greater, or less."""
    read = next((value for value in (first, second) if isinstance(value, ReadNumberValue)), None)
    if read is None:
        return fold(frame, function, [first, second], {})
    classes = [_class_of(value, read) for value in (first, second)]
    if None in classes or any(isinstance(value, ReadNumberValue) and value.cls is bool for value in (first, second)):
        return None
    is_second = compare_numbers(frame, operator.gt if function is max else operator.lt, second, first)
    assert isinstance(is_second, ReadNumberValue)
    numbers = [_as_int(value) if classes == [int, int] else _as_float(read, value) for value in (second, first)]
    made = frame.capture.graph.call(torch.where, [is_second.tensor, *numbers])
    assert isinstance(made, TensorValue)
    lows, highs = zip(*(_bounds(value) for value in (first, second)))
    is_either = classes[0] is not classes[1] or any(_may_be_int(value) for value in (first, second))
    return read.like(made, (function(lows), function(highs)), _digits(first, second), is_either)


def _digits(*numbers: Value) -> torch.dtype | None:
    """A dtype that one of several numbers was read from, and that is too small for none of them."""
    found = {number.digits for number in numbers if isinstance(number, ReadNumberValue)}
    digits = found.pop()
    if found or digits is None or not all(isinstance(number, (ReadNumberValue, ConstantValue)) for number in numbers):
        return None
    most = torch.finfo(digits).max
    return digits if all(abs(n.value) <= most for n in numbers if isinstance(n, ConstantValue)) else None


def compare_numbers(frame: Frame, function: Callable[..., Any], a: Value, b: Value) -> Value | None:
    """A comparison of numbers of which one was read from a tensor; None where it was not, or the other is a tensor."""
    read = a if isinstance(a, ReadNumberValue) else b
    if not isinstance(read, ReadNumberValue) or isinstance(a, TensorValue) or isinstance(b, TensorValue):
        return None
    classes = [_class_of(value, read) for value in (a, b)]
    if None in classes:
        read.must_be_known()
    if classes == [int, int]:
        numbers = [_as_int(value) for value in (a, b)]
    else:
        for value in (a, b):
            _narrow(frame, value, LARGEST_EXACT)
        numbers = [_as_float(read, value) for value in (a, b)]
    made = frame.capture.graph.call(function, numbers)
    assert isinstance(made, TensorValue)
    return read.like(made, (0, 1))


def _may_be_int(value: Value) -> bool:
    return isinstance(value, ReadNumberValue) and value.is_either


def _gives_either(operands: Sequence[Value], classes: Sequence[type | None]) -> bool:
    """Whether arithmetic gives an int where the operands that may be ints are."""
    either = [_may_be_int(value) for value in operands]
    return any(either) and not any(cls is float and not may_be for cls, may_be in zip(classes, either))


def _class_of(value: Value, read: ReadNumberValue) -> type | None:
    """As what the graph can compute with an operand beside `read`: float or int, which bools are, too; None where it
    can't."""
    device = read.tensor.fake.device
    if isinstance(value, ReadNumberValue) and value.tensor.fake.device == device:
        return float if value.cls is float else int
    if isinstance(value, ConstantValue) and type(value.value) is int and abs(value.value) <= LARGEST_EXACT:
        return int
    if isinstance(value, ConstantValue) and type(value.value) is float:
        return float
    if isinstance(value, SymNumberValue) and type(value.value) is float and device.type == "cpu":
        return float
    if isinstance(value, SymIntValue) and device.type == "cpu" and _is_exact(read, value):
        return int
    return None


def _is_exact(read: ReadNumberValue, size: SymIntValue) -> bool:
    """Whether an int that is not assumed is one that a float may be, too, which is a guard."""
    if _float_of(read, size) is None:
        return False
    return bool(size.size <= LARGEST_EXACT) and bool(size.size >= -LARGEST_EXACT)


def _compute_floats(
    frame: Frame, function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]
) -> Value:
    numbers = [_as_float(read, value) for value in operands]
    limits = [_bounds(value) for value in operands]
    if function is operator.pow and isinstance(operands[0], SymNumberValue):
        limits[0] = _guarded_bounds(operands[0])
    if function is operator.truediv and not limits[1][0] > _SURELY_POSITIVE:
        _check_divisor(frame, read, numbers[1])
    if function is operator.pow and not _is_plain_power(*limits):
        return _called(function, read, operands)
    graph = frame.capture.graph
    if function is operator.truediv:  # by a number torch multiplies with the inverse, and of a number it takes that
        beside = read.in_dtype(torch.float64)
        numbers = [
            number if isinstance(number, TensorValue) else graph.call(torch.full_like, [beside, number])
            for number in numbers
        ]
    made = graph.call(torch.clone if function is operator.pos else function, numbers)
    assert isinstance(made, TensorValue)
    return read.like(made, _bounds_of(function, limits))


def _as_float(read: ReadNumberValue, value: Value) -> Value:
    """A number as what stands for it in arithmetic with floats."""
    if isinstance(value, SymIntValue):
        size = _float_of(read, value)
        assert size is not None  # so its class said
        value = size
    if not isinstance(value, (ReadNumberValue, SymNumberValue)):
        return ConstantValue(float(value.constant()))
    number = value.in_dtype(torch.float64)
    assert number is not None
    return number


def _as_int(value: Value) -> Value:
    return value.in_dtype(torch.int64) if isinstance(value, ReadNumberValue) else value


def _compute_ints(
    frame: Frame, function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]
) -> Value:
    """Python's ints don't overflow, and int64 must not either."""
    if function is operator.truediv:  # exact ints that a double holds give the double that is nearest to the quotient
        for value in operands:
            _narrow(frame, value, LARGEST_EXACT)
        return _compute_floats(frame, function, read, operands)
    limits = [_bounds(value) for value in operands]
    if function not in _SUMS or not all(abs(corner) < 2**63 for corner in _corners(function, limits) or ()):
        limits = [_narrow(frame, value) for value in operands]
    if function in _OF_INTS:
        if not isinstance(operands[1], ConstantValue) or not operands[1].value:
            return _called(function, read, operands)
    corners = _corners(function, limits)
    if corners is None or not all(abs(corner) < 2**63 for corner in corners):
        return _called(function, read, operands)
    numbers = [_as_int(value) for value in operands]
    made = frame.capture.graph.call(torch.clone if function is operator.pos else function, numbers)
    assert isinstance(made, TensorValue)
    result = read.like(made, (min(corners), max(corners)))
    added = _added(function, read, operands)
    if added is not None:
        result.base, result.ahead = read.base or read, read.ahead + added
    return result


def _added(function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]) -> Any:
    """The constant or size that is added to an int; None for everything else that is done to it."""
    if function not in _SUMS or read.cls is not int or function is operator.sub and operands[0] is not read:
        return None
    added = plain_or_size(operands[1] if operands[0] is read else operands[0])
    return added if added is None or function is operator.add else -added


def _narrow(frame: Frame, value: Value, most: int = _SMALL) -> tuple[float, float]:
    """The bounds of an int; where it could be any of int64, the graph asserts that it is small. Where it is not, the
    call goes on in plain Python. That one that is not assumed is small is a guard."""
    if isinstance(value, SymIntValue) and value.size < most and value.size > -most:
        bounds = _bounds(value)
        return max(bounds[0], 1 - most), min(bounds[1], most - 1)
    if not isinstance(value, ReadNumberValue) or value.cls is not int or max(map(abs, value.bounds)) <= LARGEST_EXACT:
        return _bounds(value)
    graph = frame.capture.graph
    if not any(is_there(node) for limit, node in value.below.items() if limit <= most):
        low = graph.call(torch.gt, [value.tensor, ConstantValue(-most)])
        high = graph.call(torch.lt, [value.tensor, ConstantValue(most)])
        small = graph.call(torch.logical_and, [low, high])
        assert isinstance(small, TensorValue)
        value.check(small)
        value.below[most] = small.node
    return 1 - most, most - 1


def _corners(function: Callable[..., Any], limits: Sequence[tuple[float, float]]) -> list[int] | None:
    """Ints among which are the least and the greatest that a function of ints within limits gives; None for functions
    that are not followed."""
    first = [int(end) for end in limits[0]]
    if function is abs:
        return [0, *map(abs, first)]
    if len(limits) == 1:
        return [function(end) for end in first]
    second = [int(end) for end in limits[1]]
    if function is operator.mod:
        return [0, second[0] - 1 if second[0] > 0 else second[0] + 1]
    if function is operator.pow:
        return None
    return [function(a, b) for a in first for b in second]


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, ReadNumberValue):
        return value.bounds
    if isinstance(value, ConstantValue):
        return value.value, value.value
    if isinstance(value, SymIntValue):
        low, high = value.size.node.expression.bounds
        return max(low, -LARGEST_EXACT), min(high, LARGEST_EXACT)
    return -math.inf, math.inf


def _guarded_bounds(number: SymNumberValue) -> tuple[float, float]:
    """Bounds that a number from 0 to 1 is guarded to lie between, as the rate of a moving average that a schedule
    changes: far enough from it that they hold for others, and below 1, so that 1 less a power of it is none."""
    if not 0 <= number.value < 1:
        return _bounds(number)
    most = 1 - 2.0 ** (math.floor(math.log2(1 - number.value)) - 2)
    return (0.0, most) if number.surely("ge", 0.0) and number.surely("le", most) else _bounds(number)


def _is_plain_power(base: tuple[float, float], exponent: tuple[float, float]) -> bool:
    """Whether a power is surely a float, and none that Python raises for: of numbers from 0 to 1."""
    return 0 <= base[0] <= base[1] <= 1 and exponent[0] >= 0


def _bounds_of(function: Callable[..., Any], of: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What a result surely lies between, but for rounding."""
    if function is operator.pow:
        (low, high), (least, most) = of
        return low**most, high**least
    if function is operator.sub:
        (low, high), (least, most) = of
        return low - most, high - least
    return -math.inf, math.inf


def _check_divisor(frame: Frame, read: ReadNumberValue, divisor: Value) -> None:
    """Have the graph raise where Python does: the call goes on in plain Python then."""
    if isinstance(divisor, TensorValue):
        read.check(frame.capture.graph.call(torch.ne, [divisor, ConstantValue(0.0)]))
    elif not divisor.constant():
        raise frame.raised(ZeroDivisionError, "division by zero")
