"""What stands for an argument that was not given, and for what C functions say in the running version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Absent:
    """The default of parameters for which every object is a meaning; compared by `is`."""


def message(function: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The text of the exception that `function` raises for these arguments. Raises AssertionError if it raises none."""
    try:
        function(*args, **kwargs)
    except Exception as e:
        return str(e)
    raise AssertionError(f"{function} raised nothing")
