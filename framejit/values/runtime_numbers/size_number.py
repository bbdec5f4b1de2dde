"""Floats that are computed from sizes which are left open: `n ** -0.5`, `1 / math.sqrt(n)`.

Replacement code computes such a number anew at each call, from the sizes, as Python does, and the graph takes it as an
input. Operations that Python could raise for stay here only while the sizes that they are computed from have been asked
about: a divisor is not 0, what is raised to a power is positive. A comparison is a condition on the size
(`size_ranges.py`), and `int()` of such a number an int that is read like an argument.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit.guards.computed_numbers import is_reached
from framejit.guards.computed_size import ComputedSize
from framejit.guards.size_program import NUMBER
from framejit.guards.sources import BinarySource, CallSource, ManySource, PairSource, Source, TypedKey, source
from framejit.symbols.expression import Expression
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import fold
from framejit.values.handlers import handles
from framejit.values.runtime_numbers.size_ranges import OneSize
from framejit.values.sym_int import LARGEST, SymIntValue
from framejit.values.sym_number import COMPARE, GREATEST_EXPONENT, SymNumberValue, guard_answer
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.emitter import Emitter
    from framejit.values.context import Capture, Frame

Bounds = tuple[float, float]
"""Least and greatest value."""
_SYMBOLS: Final = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/", operator.pow: "**",
    operator.floordiv: "//", operator.mod: "%",
}
GREATEST: Final = 1e200
"""Beyond, or between its inverse and 0, a further step might overflow or round to 0."""
_GREATEST_POWER: Final = 1e100
_LEAST_DIVISOR: Final = 1e-12
"""What may come to be 0 is divided by while it is as large as this."""
_MOST_DIVIDED: Final = 1 << 52
"""Up to here the quotient of two ints, as a float, lies between the same whole numbers as the exact one."""
_WHOLE: Final[dict[str, Callable[[float], int]]] = {
    "__int__": int, "__trunc__": math.trunc, "__floor__": math.floor, "__ceil__": math.ceil, "__round__": round,
}


@source
class SizeSource(ManySource):
    """An expression over several sizes, computed from the sizes of what stands at `leaves`."""

    expression: Expression
    leaves: tuple[tuple[Any, Source, tuple[int, bool]], ...]
    """Each symbol, where it is read, and as what: a dimension (or NUMBER), and whether its stride is."""

    def computation(self) -> tuple[Callable[..., Any], tuple[Source, ...]]:
        computed = ComputedSize(self.expression, tuple((symbol, place) for symbol, _, place in self.leaves))
        return computed, tuple(source for _, source, _ in self.leaves)

    def emit(self, em: Emitter) -> None:
        computed, sources = self.computation()
        em.call_object(computed, lambda: [em.load_source(source) for source in sources], len(sources))

    def name(self) -> str:
        return str(self.expression)


@source
class OneSizeSource(CallSource):
    """An expression over one size."""

    def name(self) -> str:
        return str(self.function.expression)


class SizeNumberValue(SymNumberValue):
    """A float, now `value`, that is computed from `sizes` and surely lies in `bounds`.

    `of`: how, if it rises or falls with a single size; `quotient`: the ints that it is the quotient of, if it is one.
    """

    def __init__(
        self,
        capture: Capture,
        value: float,
        source: Source,
        sizes: tuple[SymIntValue, ...],
        bounds: Bounds,
        of: OneSize | None = None,
        quotient: tuple[SymIntValue, int] | None = None,
    ) -> None:
        super().__init__(capture, value, source)
        self.sizes, self.bounds, self.of, self.quotient = sizes, bounds, of, quotient

    def describe(self) -> str:
        return f"float {self.source.name()!r}"

    def assume(self) -> None:
        for size in self.sizes:
            size.constant()

    def truth(self, frame: Frame) -> bool:
        return bool(self.value if self._keeps_its_side_of(0) else self.constant())

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found = None
        if not args and not kwargs:
            if name in _WHOLE:
                found = self.whole(_WHOLE[name])
            elif name == "is_integer" and self.quotient is not None and self._is_exact():
                found = ConstantValue(bool(self.quotient[0].size % self.quotient[1] == 0))
        return super().call_method(frame, name, args, kwargs) if found is None else found

    def binary(self, symbol: str, other: Value, reflected: bool) -> Value | None:
        if isinstance(other, SymNumberValue) and not isinstance(other, SizeNumberValue):
            return super().binary(symbol, other, reflected)
        function = next((function for function, written in _SYMBOLS.items() if written == symbol), None)
        operands = (other, self) if reflected else (self, other)
        return None if function is None else computed_from_sizes(self.capture, function, *operands)

    def compare(self, name: str, other: Value, reflected: bool) -> Value | None:
        if isinstance(other, (SymIntValue, SymNumberValue)):
            return self._compare_both(name, other, reflected)
        if self.of is None:  # the guard computes it
            return super().compare(name, other, reflected)
        if not isinstance(other, ConstantValue) or type(other.value) not in (int, float):
            return None
        number: float = other.value
        function = getattr(operator, name)

        def outcome(value: float) -> bool:
            return bool(function(number, value) if reflected else function(value, number))

        kept = self._keeps_its_side_of(number) if name in ("eq", "ne") else self.of.keeps(outcome)
        return ConstantValue(outcome(self.value)) if kept else None

    def _compare_both(self, name: str, other: SymIntValue | SymNumberValue, reflected: bool) -> Value | None:
        """The outcome of a comparison with a number that is made of the same size."""
        if isinstance(other, SymIntValue):
            if other.is_of_data():
                return None
            number, source = other.size.node.hint, place_of(other)
        else:
            number, source = other.value, other.source
        (a, left), (b, right) = sides = [(self.value, self.source), (number, source)]
        if reflected:
            (b, right), (a, left) = sides
        outcome = bool(getattr(operator, name)(a, b))
        guard_answer(self.capture, PairSource(left, right, COMPARE[name], name), outcome)
        return ConstantValue(outcome)

    def _keeps_its_side_of(self, number: float) -> bool:
        """Whether it is a condition from here on that it is greater than a number, or equal, or less, as it is now."""
        return self.of is not None and self.of.keeps(lambda value: (value > number) - (value < number))

    def absolute(self) -> Value | None:
        """`abs()` of it; None where the sizes must be known."""
        if self.bounds[0] < 0 and not self._keeps_its_side_of(0):
            return None
        return self.binary("*", ConstantValue(-1), False) if self.value < 0 else self

    def _is_exact(self) -> bool:
        """Whether it is a condition from here on that the size divided is one that floats hold, and not negative."""
        assert self.quotient is not None
        size = self.quotient[0].size
        return bool(size >= 0) and bool(size <= _MOST_DIVIDED)

    def whole(self, function: Callable[[float], int]) -> Value | None:
        """The whole number that `function` makes of it, one that rises with its argument; None where the sizes must be
        known."""
        if self.quotient is not None and function is not round and self._is_exact():
            size, divisor = self.quotient[0].size, self.quotient[1]
            return from_python(-(-size // divisor) if function is math.ceil else size // divisor)
        now = function(self.value)
        if is_reached(self.source) and 0 <= now <= LARGEST:
            source = CallSource(self.source, function)
            return SymIntValue(self.capture.sizes.number(now, source), source, now)
        if self.of is None and not is_reached(self.source):  # of several sizes: no guard tree leads to it
            return WholeOfSizes(self.capture, now, CallSource(self.source, function))
        return ConstantValue(now) if self.of is not None and self.of.keeps(function) else None


class WholeOfSizes(SymNumberValue):
    """An int that is made of a float of several sizes. Where it must be known the sizes need not be."""

    def assume(self) -> None:
        place = BinarySource(self.source, COMPARE["eq"], "eq", TypedKey(self.value))
        guard_answer(self.capture, place, True)


class SizeBesideNumber(SymNumberValue):
    """A size, where a number takes part that is computed from none."""

    def __init__(self, capture: Capture, size: SymIntValue) -> None:
        super().__init__(capture, size.size.node.hint, place_of(size))
        self.size = size

    def assume(self) -> None:
        self.size.constant()


def beside_number(capture: Capture, value: Value, other: Value) -> Value:
    """What stands for a value beside another."""
    if not isinstance(value, SymIntValue) or value.is_of_data():
        return value
    is_beside = isinstance(other, SymNumberValue) and not isinstance(other, SizeNumberValue)
    return SizeBesideNumber(capture, value) if is_beside else value


def computed_from_sizes(capture: Capture, function: Callable[..., Any], a: Value, b: Value) -> Value | None:
    """`function` of two numbers, of which one is computed from sizes, where that is a float; None where the sizes must
    be known."""
    symbol = _SYMBOLS.get(function)
    if symbol is None or not isinstance(a, (SymIntValue, SizeNumberValue)) and not isinstance(
        b, (SymIntValue, SizeNumberValue)
    ):
        return None
    numbers = [operand(value) for value in (a, b)]
    left, right = numbers
    if left is None or right is None:
        return None
    (x, x_bounds), (y, y_bounds) = left, right
    follows = isinstance(a, ConstantValue) or isinstance(b, ConstantValue)
    if function in (operator.floordiv, operator.mod):
        if not isinstance(b, ConstantValue) or y <= 0 or type(x) is type(y) is int:
            return None
        follows = function is operator.floordiv
    elif function is operator.pow:
        if isinstance(a, ConstantValue):
            exponents = _exponents(x, b, y_bounds) if type(x) is float else None
            if exponents is None:
                return None
            y_bounds = exponents
        else:
            if type(y) is int and isinstance(a, SymIntValue) or not isinstance(b, ConstantValue):
                return None
            base = positive(a, x_bounds) if abs(y) <= GREATEST_EXPONENT else None
            if base is None:
                return None
            x_bounds = base
    elif function is operator.truediv:
        divisor = y_bounds if y_bounds[1] < 0 else positive(b, y_bounds)
        if divisor is None:
            return None
        y_bounds = divisor
    elif type(x) is int and type(y) is int:
        return None
    value = function(x, y)
    corners = [function(p, q) for p in x_bounds for q in y_bounds] if function is not operator.mod else [0.0, float(y)]
    bounds = min(corners), max(corners)
    if not all(is_moderate(bound) for bound in (value, *bounds)):
        return None
    sizes = [value for value in (a, b) if isinstance(value, SymIntValue)]
    sizes += [size for value in (a, b) if isinstance(value, SizeNumberValue) for size in value.sizes]
    of = None
    if follows and isinstance(b, ConstantValue):
        of = follow(a, x_bounds, lambda number: function(number, y))
    elif follows:
        of = follow(b, y_bounds, lambda number: function(x, number))
    divided = function is operator.truediv and isinstance(a, SymIntValue) and type(y) is int and y > 0
    quotient = (a, y) if divided and isinstance(b, ConstantValue) else None
    return SizeNumberValue(
        capture, value, _source_of(a, b, symbol, function.__name__), tuple(sizes), bounds, of,
        quotient,  # type: ignore[arg-type]
    )


def follow(value: Value, bounds: Bounds, function: Callable[[Any], float]) -> OneSize | None:
    """How `function` of a number, which lies in `bounds`, is computed from a single size; None where it is not."""
    if isinstance(value, SymIntValue):
        return OneSize(value, function, int(bounds[0]), int(bounds[1]))
    of = value.of if isinstance(value, SizeNumberValue) else None
    return None if of is None else of.then(function)


def operand(value: Value) -> tuple[int | float, Bounds] | None:
    """What a number is now, and its bounds; None for what is not followed."""
    if isinstance(value, SizeNumberValue):
        return value.value, value.bounds
    if isinstance(value, SymIntValue) and not value.is_of_data():
        low, high = value.size.node.expression.bounds
        return value.size.node.hint, (max(low, -float(LARGEST)), min(high, float(LARGEST)))
    if isinstance(value, ConstantValue) and type(value.value) in (int, float) and is_moderate(value.value):
        return value.value, (value.value, value.value)
    return None


def positive(value: Value, bounds: Bounds) -> Bounds | None:
    """The bounds of a number that is positive; that it is becomes a condition."""
    if isinstance(value, SymIntValue):
        return (max(1.0, bounds[0]), bounds[1]) if value.size > 0 else None
    if bounds[0] > 0:
        return bounds
    if not isinstance(value, SizeNumberValue) or not value.surely("ge", _LEAST_DIVISOR):
        return None
    return _LEAST_DIVISOR, bounds[1]


def within(value: Value, bounds: Bounds, low: float, high: float) -> Bounds | None:
    """The bounds of a number that lies between two others; that it does becomes a condition. None where it does not."""
    found, of = operand(value), None
    if bounds[0] < low or bounds[1] > high:
        of = follow(value, bounds, float)
        if found is None or of is None or not low <= found[0] <= high:
            return None
    if bounds[0] < low and of is not None and not of.keeps(lambda number: number >= low):
        return None
    if bounds[1] > high and of is not None and not of.keeps(lambda number: number > high):
        return None
    return max(bounds[0], low), min(bounds[1], high)


def _exponents(base: float, exponent: Value, bounds: Bounds) -> Bounds | None:
    """The bounds of an exponent with which a power of a number is not too large for a float."""
    if base <= 0:
        return None
    most = math.inf if base == 1 else math.log(_GREATEST_POWER) / abs(math.log(base))
    return within(exponent, bounds, *((-most, math.inf) if base < 1 else (-math.inf, most)))


def is_moderate(number: float) -> bool:
    """Whether a further step neither overflows nor rounds to 0 what is not."""
    return number == 0 or 1 / GREATEST < abs(number) < GREATEST


def _source_of(a: Value, b: Value, symbol: str, name: str) -> Source:
    if isinstance(b, ConstantValue):
        return BinarySource(place_of(a), symbol, name, TypedKey(b.value))
    if isinstance(a, ConstantValue):
        return BinarySource(place_of(b), symbol, name, TypedKey(a.value), True)
    return PairSource(place_of(a), place_of(b), symbol, name)


def place_of(value: Value) -> Source:
    """Where a number can be computed again."""
    if not isinstance(value, SymIntValue):
        assert isinstance(value, SizeNumberValue)
        return value.source
    sizes = value.sizes
    expression = sizes.simplified(value.size.node.expression)
    leaves = [(symbol, sizes.leaves[symbol]) for symbol in sorted(dict.fromkeys(expression.symbols()), key=str)]
    if len(leaves) == 1:
        (symbol, leaf), = leaves
        if leaf.dim == NUMBER and expression.lone_symbol is symbol:
            return leaf.source
        return OneSizeSource(leaf.source, ComputedSize(expression, ((symbol, (leaf.dim, leaf.is_stride)),)))
    return SizeSource(
        expression, tuple((symbol, leaf.source, (leaf.dim, leaf.is_stride)) for symbol, leaf in leaves)
    )


def number_at_place(capture: Capture, value: SymIntValue | SymNumberValue) -> SymNumberValue | None:
    """A number that is not assumed, where guards read it; None for what is computed of several."""
    if isinstance(value, SymNumberValue):
        return value if is_reached(value.source) else None
    place = None if value.is_of_data() else place_of(value)
    return SymNumberValue(capture, int(value.size.node.hint), place) if place and is_reached(place) else None


@handles(math.isqrt)
def _whole_root(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    size = args[0] if len(args) == 1 and not kwargs else None
    if not isinstance(size, SymIntValue) or size.is_of_data() or not size.size >= 0:
        return fold(frame, math.isqrt, args, kwargs)
    source, root = CallSource(place_of(size), math.isqrt), math.isqrt(size.size.node.hint)
    if not is_reached(source):
        return fold(frame, math.isqrt, args, kwargs)
    return SymIntValue(frame.capture.sizes.number(root, source), source, root)


def as_float(capture: Capture, size: SymIntValue) -> Value | None:
    """`float()` of a size; None where it must be known."""
    found = operand(size)
    if found is None:
        return None
    value, bounds = found
    place, of = CallSource(place_of(size), float), follow(size, bounds, float)
    return SizeNumberValue(capture, float(value), place, (size,), bounds, of, (size, 1))
