"""Operations on two numbers that are made of one, as in `(1 + step) / (10 + step)`: guards reach the result by way of
that one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from framejit.guards.sources import BinarySource, CallSource, Source, TypedKey, source
from framejit.late_dataclass import dataclass

Step = Callable[[Any], Any]


@dataclass(frozen=True)
class WithNumber:
    """`number <operation> const`, or the other way round when `reflected`."""

    operation: str
    const: TypedKey
    reflected: bool

    def __call__(self, number: Any) -> Any:
        function, const = getattr(operator, self.operation), self.const.value
        return function(const, number) if self.reflected else function(number, const)


@dataclass(frozen=True)
class ComputedPair:
    """What an operation of the `operator` module gives for two numbers that are made of the one it is called with.

    `left`, `right`: the steps to each, one after the other.
    """

    left: tuple[Step, ...]
    right: tuple[Step, ...]
    operation: str

    def __call__(self, value: Any) -> Any:
        numbers = []
        for steps in (self.left, self.right):
            number = value
            for step in steps:
                number = step(number)
            numbers.append(number)
        return getattr(operator, self.operation)(*numbers)


@source
class OnePairSource(CallSource):
    """`left <symbol> right`, of the one number that both are made of."""

    text: str

    def name(self) -> str:
        return self.text


def pair_of_one(left: Source, right: Source, symbol: str, operation: str) -> Source | None:
    """The place of `left <symbol> right`, if both are made of one number; else None."""
    (root, to_left), (other, to_right) = _steps(left), _steps(right)
    if root != other:
        return None
    return OnePairSource(
        root, ComputedPair(to_left, to_right, operation), f"({left.name()} {symbol} {right.name()})"
    )


def _steps(place: Source) -> tuple[Source, tuple[Step, ...]]:
    """What a number is made of, and the steps from there."""
    steps = list[Step]()
    while isinstance(place, (BinarySource, CallSource)):
        steps.append(
            place.function
            if isinstance(place, CallSource)
            else WithNumber(place.operation, place.const, place.reflected)
        )
        place = place.origin
    return place, tuple(reversed(steps))
