"""From what was optimized back to the function that it was made from."""
from __future__ import annotations

from types import FunctionType
from typing import Any

from framejit._native import Dispatcher


def function_behind(target: Any) -> Any:
    """The function that was optimized, of an optimized one; anything else as it is."""
    if isinstance(target, Dispatcher):
        return target.function
    return getattr(target, "_framejit_verified", target) if isinstance(target, FunctionType) else target
