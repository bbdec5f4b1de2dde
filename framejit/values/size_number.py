"""Floats that are computed from sizes which are left open: `n ** -0.5`, `1 / math.sqrt(n)`.

Replacement code computes such a number anew at each call, from the sizes, as Python does, and the graph takes it as an
input. Operations that Python could raise for stay here only while the sizes that they are computed from have been asked
about: a divisor is not 0, what is raised to a power is positive.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit.guards.computed_size import ComputedSize
from framejit.guards.sources import BinarySource, CallSource, PairSource, Source, TypedKey, source
from framejit.symbols.expression import Expression
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import fold
from framejit.values.handlers import handles
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.sym_number import SymNumberValue

if TYPE_CHECKING:
    from framejit.bytecode.emitter import Emitter
    from framejit.values.context import Capture, Frame

Bounds = tuple[float, float]
"""Least and greatest value."""
_SYMBOLS: Final = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.pow: "**",
}
_GREATEST_EXPONENT: Final = 4.0
_GREATEST: Final = 1e200
"""Beyond, or between its inverse and 0, a further step might overflow or round to 0."""


@source
class SizeSource(Source):
    """An expression over sizes, computed from the sizes of what stands at `leaves`."""

    expression: Expression
    leaves: tuple[tuple[Any, Source, tuple[int, bool]], ...]
    """Each symbol, where it is read, and as what: a dimension (or NUMBER), and whether its stride is."""

    def emit(self, em: Emitter) -> None:
        leaves = self.leaves
        computed = ComputedSize(self.expression, tuple((leaf[0], leaf[2]) for leaf in leaves))
        em.call_object(computed, lambda: [em.load_source(leaf[1]) for leaf in leaves], len(leaves))

    def name(self) -> str:
        return str(self.expression)


class SizeNumberValue(SymNumberValue):
    """A float, now `value`, that is computed from `sizes` and surely lies in `bounds`."""

    def __init__(
        self, capture: Capture, value: float, source: Source, sizes: tuple[SymIntValue, ...], bounds: Bounds
    ) -> None:
        super().__init__(capture, value, source)
        self.sizes, self.bounds = sizes, bounds

    def describe(self) -> str:
        return f"float {self.source.name()!r}"

    def assume(self) -> None:
        for size in self.sizes:
            size.constant()

    def truth(self, frame: Frame) -> bool:
        return bool(self.constant())

    def binary(self, symbol: str, other: Value, reflected: bool) -> Value | None:
        function = next((function for function, written in _SYMBOLS.items() if written == symbol), None)
        operands = (other, self) if reflected else (self, other)
        return None if function is None else computed_from_sizes(self.capture, function, *operands)

    def compare(self, name: str, other: Value, reflected: bool) -> Value | None:
        return None


def computed_from_sizes(capture: Capture, function: Callable[..., Any], a: Value, b: Value) -> Value | None:
    """`function` of two numbers, of which one is computed from sizes, where that is a float; None where the sizes must
    be known."""
    symbol = _SYMBOLS.get(function)
    if symbol is None or not isinstance(a, (SymIntValue, SizeNumberValue)) and not isinstance(
        b, (SymIntValue, SizeNumberValue)
    ):
        return None
    numbers = [_operand(value) for value in (a, b)]
    left, right = numbers
    if left is None or right is None:
        return None
    (x, x_bounds), (y, y_bounds) = left, right
    if function is operator.pow:
        if type(y) is int and isinstance(a, SymIntValue) or not isinstance(b, ConstantValue):
            return None
        base = _positive(a, x_bounds) if abs(y) <= _GREATEST_EXPONENT else None
        if base is None:
            return None
        x_bounds = base
    elif function is operator.truediv:
        divisor = _positive(b, y_bounds)
        if divisor is None:
            return None
        y_bounds = divisor
    elif type(x) is int and type(y) is int:
        return None
    value = function(x, y)
    corners = [function(p, q) for p in x_bounds for q in y_bounds]
    bounds = min(corners), max(corners)
    if not all(_is_moderate(bound) for bound in (value, *bounds)):
        return None
    sizes = [value for value in (a, b) if isinstance(value, SymIntValue)]
    sizes += [size for value in (a, b) if isinstance(value, SizeNumberValue) for size in value.sizes]
    return SizeNumberValue(capture, value, _source_of(a, b, symbol, function.__name__), tuple(sizes), bounds)


def _operand(value: Value) -> tuple[int | float, Bounds] | None:
    """What a number is now, and its bounds; None for what is not followed."""
    if isinstance(value, SizeNumberValue):
        return value.value, value.bounds
    if isinstance(value, SymIntValue) and not value.is_of_data():
        low, high = value.size.node.expression.bounds
        return value.size.node.hint, (max(low, -float(LARGEST)), min(high, float(LARGEST)))
    if isinstance(value, ConstantValue) and type(value.value) in (int, float) and _is_moderate(value.value):
        return value.value, (value.value, value.value)
    return None


def _positive(value: Value, bounds: Bounds) -> Bounds | None:
    """The bounds of a number that is positive; of a size, that it is becomes a condition."""
    if isinstance(value, SymIntValue):
        return (max(1.0, bounds[0]), bounds[1]) if value.size > 0 else None
    return bounds if bounds[0] > 0 else None


def _is_moderate(number: float) -> bool:
    return number == 0 or 1 / _GREATEST < abs(number) < _GREATEST


def _source_of(a: Value, b: Value, symbol: str, name: str) -> Source:
    if isinstance(b, ConstantValue):
        return BinarySource(_place(a), symbol, name, TypedKey(b.value))
    if isinstance(a, ConstantValue):
        return BinarySource(_place(b), symbol, name, TypedKey(a.value), True)
    return PairSource(_place(a), _place(b), symbol, name)


def _place(value: Value) -> Source:
    """Where a number can be computed again."""
    if not isinstance(value, SymIntValue):
        assert isinstance(value, SizeNumberValue)
        return value.source
    sizes = value.sizes
    expression = sizes.simplified(value.size.node.expression)
    leaves = [(symbol, sizes.leaves[symbol]) for symbol in sorted(dict.fromkeys(expression.symbols()), key=str)]
    return SizeSource(
        expression, tuple((symbol, leaf.source, (leaf.dim, leaf.is_stride)) for symbol, leaf in leaves)
    )


@handles(math.sqrt)
def _square_root(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    number = args[0] if len(args) == 1 and not kwargs else None
    found = _operand(number) if isinstance(number, (SymIntValue, SizeNumberValue)) else None
    bounds = _positive(number, found[1]) if number is not None and found is not None else None
    if number is None or found is None or bounds is None:
        return fold(frame, math.sqrt, args, kwargs)
    sizes = (number,) if isinstance(number, SymIntValue) else number.sizes  # type: ignore[attr-defined]
    return SizeNumberValue(
        frame.capture, math.sqrt(found[0]), CallSource(_place(number), math.sqrt), sizes,
        (math.sqrt(bounds[0]), math.sqrt(bounds[1])),
    )
