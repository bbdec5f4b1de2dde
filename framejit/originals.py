"""From what was optimized back to the function or module that it was made from."""
from __future__ import annotations

from types import FunctionType
from typing import Any

from framejit._native import Dispatcher


def function_behind(target: Any) -> Any:
    """The function that was optimized, of an optimized one; anything else as it is."""
    if isinstance(target, Dispatcher):
        return target.function
    return getattr(target, "_framejit_verified", target) if isinstance(target, FunctionType) else target


def original_of(optimized: Any) -> Any:
    """The module that was given to `optimize`."""
    return object.__getattribute__(optimized, "__call__").__self__


class ClassOfOriginal:
    """`__class__` of an optimized module: the class of the module that it stands for, of which programs make others by
    `module.__class__(...)`."""

    def __get__(self, optimized: Any, owner: type) -> type:
        return type(original_of(optimized))

    def __set__(self, optimized: Any, cls: type) -> None:
        original_of(optimized).__class__ = cls
