"""Answers about numbers that are computed from several places, as to `loss < best * 0.99`: a guard reads what they are
computed from, and computes them again."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from framejit.guards.sources import BinarySource, CallSource, ManySource, Source, Step, TypedKey
from framejit.late_dataclass import dataclass

Term = Callable[..., Any]
"""Called with all that a guard reads."""


@dataclass(frozen=True)
class Read:
    """What a guard reads at a position among its sources."""

    position: int

    def __call__(self, *read: Any) -> Any:
        return read[self.position]


@dataclass(frozen=True)
class Known:
    """A number of the program's text."""

    number: TypedKey

    def __call__(self, *read: Any) -> Any:
        return self.number.value


@dataclass(frozen=True)
class Computed:
    """What a function gives for its operands."""

    function: Callable[..., Any]
    operands: tuple[Term, ...]

    def __call__(self, *read: Any) -> Any:
        return self.function(*[operand(*read) for operand in self.operands])


@dataclass(frozen=True)
class Answer:
    """Whether a question, written as `text`, has the answer that it had."""

    question: Term
    answer: bool
    text: str

    def __call__(self, *read: Any) -> bool:
        return self.question(*read) is self.answer

    def __str__(self) -> str:
        return f"{self.text} is {self.answer}"


def is_reached(place: Source) -> bool:
    """Whether steps of a guard tree lead to a number."""
    while isinstance(place, Step):
        place = place.origin
    return not isinstance(place, ManySource)


def question_at(place: Source) -> tuple[tuple[Source, ...], Term]:
    """Where guards read what is at a place computed from, and how it is computed from that."""
    read: dict[Source, int] = {}
    term = _term(place, read)
    return tuple(read), term


def _term(place: Source, read: dict[Source, int]) -> Term:
    if is_reached(place):
        return Read(read.setdefault(place, len(read)))
    if isinstance(place, ManySource):
        function, sources = place.computation()
        return Computed(function, tuple(_term(source, read) for source in sources))
    assert isinstance(place, (BinarySource, CallSource))
    operand = _term(place.origin, read)
    if isinstance(place, CallSource):
        return Computed(place.function, (operand,))
    operands: tuple[Term, ...] = (operand, Known(place.const))
    return Computed(getattr(operator, place.operation), operands[::-1] if place.reflected else operands)
