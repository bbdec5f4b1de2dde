"""functools.cmp_to_key: keys that a function of the program compares."""

from __future__ import annotations

import functools
from typing import Any

from framejit.models.model_registry import models


@models(functools.cmp_to_key)
def cmp_to_key(mycmp: Any) -> Any:
    return Keys(mycmp)


class Keys:
    fields = ("mycmp",)

    def __init__(self, mycmp: Any) -> None:
        self.mycmp = mycmp

    def __call__(self, obj: Any) -> Any:
        return Key(self.mycmp, obj)

    @staticmethod
    def rebuild(mycmp: Any) -> Any:
        return functools.cmp_to_key(mycmp)


class Key:
    fields = ("mycmp", "obj")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, mycmp: Any, obj: Any) -> None:
        self.mycmp, self.obj = mycmp, obj

    def __lt__(self, other: Any) -> Any:
        return self.mycmp(self.obj, other.obj) < 0

    def __gt__(self, other: Any) -> Any:
        return self.mycmp(self.obj, other.obj) > 0

    def __eq__(self, other: object) -> Any:
        return self.mycmp(self.obj, other.obj) == 0  # type: ignore[attr-defined]

    def __le__(self, other: Any) -> Any:
        return self.mycmp(self.obj, other.obj) <= 0

    def __ge__(self, other: Any) -> Any:
        return self.mycmp(self.obj, other.obj) >= 0

    @staticmethod
    def rebuild(mycmp: Any, obj: Any) -> Any:
        return functools.cmp_to_key(mycmp)(obj)
