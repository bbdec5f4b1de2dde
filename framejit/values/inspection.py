"""Looking at a user's object without running any of the user's code.

`isinstance(obj, cls)` reads `obj.__class__`, and `obj.__dict__` may be answered by `__getattribute__`; while capturing,
neither may happen, for the program itself did not ask.
"""
from __future__ import annotations

from typing import Any


def is_a(obj: Any, classes: type | tuple[type, ...]) -> bool:
    """Whether the type of `obj` derives from `classes`."""
    return issubclass(type(obj), classes)


def instance_dict(obj: Any) -> dict[str, Any] | None:
    """The dict that holds an object's attributes, or None if it has none."""
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None
