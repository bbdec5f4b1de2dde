"""Generators of random numbers that graphs know by a number, and keep no longer alive than the program does: guards say
that they are there. Numbers below 0 are of those that graphs make."""

from __future__ import annotations

import itertools
import weakref
from typing import Generic, TypeVar

from framejit.backends.draws.made_generators import MADE

Generator = TypeVar("Generator")


class Numbered(Generic[Generator]):
    """The generators of a kind, by their numbers."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._number_of: weakref.WeakKeyDictionary[Generator, int] = weakref.WeakKeyDictionary()
        self._generators: weakref.WeakValueDictionary[int, Generator] = weakref.WeakValueDictionary()

    def number_of(self, generator: Generator) -> int:
        """The number by which graphs know a generator."""
        number = self._number_of.get(generator)
        if number is None:
            number = self._number_of[generator] = next(self._numbers)
            self._generators[number] = generator
        return number

    def __getitem__(self, number: int) -> Generator:
        if number < 0:
            made: Generator = MADE[number]
            return made
        return self._generators[number]
