"""Functions of `math` of numbers that are not assumed: `math.cos(math.pi * step / steps)`, `math.exp(-rate)`.

Replacement code calls the function anew at each call. Python raises where a function has no value, or one that is too
large: that the number is none of those is guarded, or made a condition on the size that it is computed from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit.guards.sources import CallSource
from framejit.late_dataclass import dataclass
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, Handler
from framejit.values.runtime_numbers.number_calls import NAMES, call_on_read
from framejit.values.runtime_numbers.size_number import (
    GREATEST,
    Bounds,
    SizeNumberValue,
    follow,
    is_moderate,
    operand,
    place_of,
    positive,
    within,
)
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue, guard_answer

if TYPE_CHECKING:
    from framejit.values.context import Frame

_QUESTIONS: Final = frozenset((math.isnan, math.isinf, math.isfinite))
EXPONENT: Final = 400.0
"""Powers of e up to here are below GREATEST."""


@dataclass(frozen=True)
class FunctionOfNumber:
    """`compute`, of numbers that are positive where that is asked, and `most` at most. It rises with its argument
    everywhere, or stays within `span`."""

    compute: Callable[[float], float]
    positive: bool = False
    most: float = GREATEST
    span: Bounds | None = None

    def __call__(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.compute is math.log and len(args) == 2 and not kwargs:
            return self._to_base(frame, *args)
        found = self.of_open(frame, args[0]) if len(args) == 1 and not kwargs else None
        return fold(frame, self.compute, args, kwargs) if found is None else found

    def of_open(self, frame: Frame, number: Value) -> Value | None:
        """The result for a number that is not assumed; None where it must be known."""
        if isinstance(number, (SymIntValue, SizeNumberValue)):
            return self._of_sizes(frame, number)
        return self._of_argument(number) if isinstance(number, SymNumberValue) else None

    def _to_base(self, frame: Frame, number: Value, base: Value) -> Value:
        """A logarithm to another base, which Python finds as the quotient of two."""
        known = base.value if isinstance(base, ConstantValue) and type(base.value) in (int, float) else 0
        if isinstance(number, (SymIntValue, SymNumberValue)) and 1 < known <= GREATEST:
            found = self(frame, [number], {})
            if isinstance(found, SymNumberValue):
                quotient = found.binary("/", ConstantValue(math.log(known)), False)
                if quotient is not None:
                    return quotient
        return fold(frame, self.compute, [number, base], {})

    def _of_sizes(self, frame: Frame, number: SymIntValue | SizeNumberValue) -> Value | None:
        """Of a number that is computed from sizes; None where these must be known."""
        found = operand(number)
        bounds = None if found is None else positive(number, found[1]) if self.positive else found[1]
        if found is None or bounds is None:
            return None
        bounds = within(number, bounds, -math.inf, self.most)
        if bounds is None:
            return None
        limits = self.span or (self.compute(bounds[0]), self.compute(bounds[1]))
        # the least may be next to 0, as of exp: who divides by it asks for more
        if not (0 <= limits[0] < 1 or is_moderate(limits[0])) or not is_moderate(limits[1]):
            return None
        sizes = (number,) if isinstance(number, SymIntValue) else number.sizes
        return SizeNumberValue(
            frame.capture, self.compute(found[0]), CallSource(place_of(number), self.compute), sizes, limits,
            follow(number, bounds, self.compute) if self.span is None else None,
        )

    def _of_argument(self, number: SymNumberValue) -> Value | None:
        """Of a number that is read anew at each call; None where it must be known."""
        if not (number.surely("gt", 0) if self.positive else number.surely("ge", -GREATEST)):
            return None
        if not number.surely("le", self.most):
            return None
        return number.called(self.compute)


for _function in (
    *(FunctionOfNumber(compute, positive=True) for compute in (math.sqrt, math.log, math.log2, math.log10, math.log1p)),
    *(FunctionOfNumber(compute, most=EXPONENT) for compute in (math.exp, math.expm1)),
    *(FunctionOfNumber(compute, span=(-1.0, 1.0)) for compute in (math.cos, math.sin)),
    *(FunctionOfNumber(compute) for compute in (math.tanh, math.atan, math.erf, math.radians, math.degrees)),
):
    HANDLERS[_function.compute] = _function


def _power(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`math.pow(base, exponent)` of a known base and an exponent that is not assumed: `base ** exponent` of a float."""
    base, exponent = args if len(args) == 2 and not kwargs else (None, None)
    if isinstance(base, ConstantValue) and type(base.value) in (int, float) and 0 < base.value <= GREATEST:
        if isinstance(exponent, (SymIntValue, SymNumberValue)):
            found = frame.binary("**", ConstantValue(float(base.value)), exponent)
            if isinstance(found, SymNumberValue):
                return found
    return fold(frame, math.pow, args, kwargs)


HANDLERS[math.pow] = _power


def _asked(function: Callable[..., Any], args: list[Value]) -> Value | None:
    """The answer to a question about a float that is read anew at each call, guarded; None of anything else."""
    number = args[0] if len(args) == 1 else None
    if function not in _QUESTIONS or not isinstance(number, SymNumberValue) or number.python_type() is not float:
        return None
    answer = function(number.value)
    guard_answer(number.capture, CallSource(number.source, function), answer)
    return ConstantValue(answer)


def _on_read(function: Callable[..., Any], name: str, otherwise: Handler | None) -> Handler:
    """A function of numbers, which the graph calls on those that were read from tensors."""

    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        found = None if kwargs else _asked(function, args) or call_on_read(function, name, args)
        if found is not None:
            return found
        return fold(frame, function, args, kwargs) if otherwise is None else otherwise(frame, args, kwargs)

    return handler


for _called, _name in NAMES.items():
    if _called is not round:
        HANDLERS[_called] = _on_read(_called, _name, HANDLERS.get(_called))
