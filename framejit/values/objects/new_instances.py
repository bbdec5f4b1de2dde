"""Instances that are made without their constructors: what replacement code calls, and so imports no compiler."""

from __future__ import annotations

from typing import Any

from framejit.guards.type_flags import HEAP_TYPE


def native_class(cls: type) -> Any:
    """The nearest class in the MRO that is written in C, whose `__new__` lays out the instance."""
    return next(k for k in cls.__mro__ if not k.__flags__ & HEAP_TYPE)


def new_instance(cls: type, items: Any) -> Any:
    """Make an instance without running its constructor; its parts are filled in afterwards."""
    base = native_class(cls)
    return base.__new__(cls, items) if issubclass(base, (tuple, frozenset)) else base.__new__(cls)
