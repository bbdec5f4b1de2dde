"""Functions that make one value of an iterable: sum, math.prod, min, max, functools.reduce."""

from __future__ import annotations

import builtins
import functools
import math
from typing import Any

from framejit.models.absent import Absent, message
from framejit.models.model_registry import models

_TEXTS = {cls: message(builtins.sum, (), cls()) for cls in (str, bytes, bytearray)}
_EMPTY_MAX, _EMPTY_MIN, _EMPTY_REDUCE = (
    message(builtins.max, ()), message(builtins.min, ()), message(functools.reduce, max, ()),
)
_NUMBERS = (int, bool, float, complex)
_MAX_DEFAULT, _MIN_DEFAULT = message(builtins.max, 1, 2, default=0), message(builtins.min, 1, 2, default=0)


@models(builtins.sum)
def sum(iterable: Any, /, start: Any = 0) -> Any:
    items = iter(iterable)
    for cls in (str, bytes, bytearray):
        if isinstance(start, cls):
            raise TypeError(_TEXTS[cls])
    # CPython adds up the numbers that come first in C, floats with what each rounding loses: of ints, then of floats,
    # then of complex numbers, and what something else leads to is a later kind of these or added up plainly
    ranks = {int: 0, float: 1, complex: 2}
    rank = -1
    while ranks.get(type(start), -1) > rank:
        numbers: list[Any] = []
        for item in items:
            if type(item) not in _NUMBERS:
                start = builtins.sum(numbers, start)
                rank = ranks[type(start)]
                start = start + item
                break
            numbers.append(item)
        else:
            return builtins.sum(numbers, start)
    for item in items:
        start = start + item
    return start


@models(math.prod)
def prod(iterable: Any, /, *, start: Any = 1) -> Any:
    for item in iterable:
        start = start * item
    return start


@models(builtins.max)
def max(first: Any, /, *rest: Any, key: Any = None, default: Any = Absent) -> Any:
    if rest and default is not Absent:
        raise TypeError(_MAX_DEFAULT)
    empty, best, best_key = True, None, None
    for item in (first, *rest) if rest else first:
        by = item if key is None else key(item)
        if empty or by > best_key:
            empty, best, best_key = False, item, by
    if not empty:
        return best
    if default is Absent:
        raise ValueError(_EMPTY_MAX)
    return default


@models(builtins.min)
def min(first: Any, /, *rest: Any, key: Any = None, default: Any = Absent) -> Any:
    if rest and default is not Absent:
        raise TypeError(_MIN_DEFAULT)
    empty, best, best_key = True, None, None
    for item in (first, *rest) if rest else first:
        by = item if key is None else key(item)
        if empty or by < best_key:
            empty, best, best_key = False, item, by
    if not empty:
        return best
    if default is Absent:
        raise ValueError(_EMPTY_MIN)
    return default


@models(functools.reduce)
def reduce(function: Any, iterable: Any, initial: Any = Absent, /) -> Any:
    for item in iterable:
        initial = item if initial is Absent else function(initial, item)
    if initial is Absent:
        raise TypeError(_EMPTY_REDUCE)
    return initial
