"""Operations on two numbers that are made of one, as in `(1 + step) / (10 + step)`: guards reach the result by way of
that one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from framejit.guards.sources import BinarySource, CallSource, PairSource, Source, TypedKey, source
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
        return getattr(operator, self.operation)(_after(self.left, value), _after(self.right, value))


@dataclass(frozen=True)
class _Steps:
    steps: tuple[Step, ...]

    def __call__(self, value: Any) -> Any:
        return _after(self.steps, value)


@source
class OfOneSource(CallSource):
    """A number that is made of one."""

    text: str

    def name(self) -> str:
        return self.text


def of_one(place: Source) -> Source | None:
    """The place of a number by which guards reach it; None if it is made of several."""
    root, steps = _made_of(place)
    return None if isinstance(root, PairSource) else OfOneSource(root, _Steps(steps), place.name())


def _after(steps: tuple[Step, ...], number: Any) -> Any:
    for step in steps:
        number = step(number)
    return number


def _made_of(place: Source) -> tuple[Source, tuple[Step, ...]]:
    """What a number is made of, and the steps from there."""
    if isinstance(place, CallSource):
        root, steps = _made_of(place.origin)
        return root, (*steps, place.function)
    if isinstance(place, BinarySource):
        root, steps = _made_of(place.origin)
        return root, (*steps, WithNumber(place.operation, place.const, place.reflected))
    if isinstance(place, PairSource):
        (root, to_left), (other, to_right) = _made_of(place.left), _made_of(place.right)
        if root == other:
            return root, (ComputedPair(to_left, to_right, place.operation),)
    return place, ()
