"""Functions of the operator module that are more than one operator."""

from __future__ import annotations

import operator
from typing import Any

from framejit.models.absent import message
from framejit.models.model_registry import models

_NOT_FOUND = message(operator.indexOf, (), 0)
_NO_DEFAULT = message(operator.length_hint, 0, None)


@models(operator.countOf)
def count_of(container: Any, value: Any, /) -> int:
    count = 0
    for item in container:
        if item is value or item == value:
            count += 1
    return count


@models(operator.indexOf)
def index_of(container: Any, value: Any, /) -> int:
    at = 0
    for item in container:
        if item is value or item == value:
            return at
        at += 1
    raise ValueError(_NOT_FOUND)


@models(operator.call)
def call(function: Any, /, *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


@models(operator.length_hint)
def length_hint(obj: Any, default: int = 0, /) -> int:
    if not isinstance(default, int):
        raise TypeError(_NO_DEFAULT.replace("NoneType", type(default).__name__))
    try:
        return len(obj)
    except TypeError:
        pass
    try:
        ask = type(obj).__length_hint__
    except AttributeError:
        return default
    try:
        hint = ask(obj)
    except TypeError:
        return default
    if hint is NotImplemented:
        return default
    if not isinstance(hint, int):
        raise TypeError("__length_hint__ must be an integer, not " + type(hint).__name__)
    if hint < 0:
        raise ValueError("__length_hint__() should return >= 0")
    return hint
