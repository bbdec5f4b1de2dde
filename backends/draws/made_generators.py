"""Generators of random numbers that a graph makes from seeds, draws from, and forgets: each run, and each thread, has
its own."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Final

MOST_KEPT: Final = 64
"""So many are kept in each thread, the last ones."""


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.made: dict[int, Any] = {}


class MadeGenerators:
    """The generators that graphs of the running thread have made last, by numbers below those of the program's."""

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)
        self._of_thread = _OfThread()

    def new_number(self) -> int:
        """The number of the generator that one place of a graph makes."""
        return next(self._numbers)

    def put(self, number: int, generator: Any) -> None:
        made = self._of_thread.made
        made.pop(number, None)
        made[number] = generator
        if len(made) > MOST_KEPT:
            del made[next(iter(made))]

    def __getitem__(self, number: int) -> Any:
        return self._of_thread.made[number]


MADE: Final = MadeGenerators()
