"""Guards that ask a function once more, as it may answer otherwise at another time."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(256)
def same_answer(args: tuple[Any, ...], expected: Any) -> Callable[[Any], bool]:
    """The check (of kind C_PY) that a function, given these arguments, still answers as it did; one object for one
    answer, so that guards deduplicate. It says what it asks as `question`."""

    def gives_the_same_answer(function: Any) -> bool:
        return bool(function(*args) == expected)

    gives_the_same_answer.question = args, expected  # type: ignore[attr-defined]
    return gives_the_same_answer


def still_unrelated(cls: type, target: type) -> Callable[[Any], bool]:
    """The check (of kind C_PY) that `issubclass` still says no of two classes, which it says as `unrelated`."""

    def says_no(issubclass: Callable[[type, type], bool]) -> bool:
        try:
            return not issubclass(cls, target)
        except TypeError:
            if not getattr(target, "_is_protocol", False):
                raise
            # one with attributes answers for instances only, but what was registered with it is known
            return not ABCMeta.__subclasscheck__(target, cls)  # type: ignore[arg-type]

    says_no.unrelated = cls, target  # type: ignore[attr-defined]
    return says_no
