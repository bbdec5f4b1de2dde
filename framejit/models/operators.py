"""Functions of the operator module that are more than one operator."""

from __future__ import annotations

import operator
from typing import Any

from framejit.models.absent import message
from framejit.models.registry import models

_NOT_FOUND = message(operator.indexOf, (), 0)


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
