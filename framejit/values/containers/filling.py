"""Dicts that replacement code fills, and lists that it takes items from; it imports no compiler for that."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from framejit import _native as native


def fill_ordered(target: Any, items: dict[Any, Any]) -> None:
    """Put items into an OrderedDict in their order, without asking methods of a subclass."""
    # dict.update does not see OrderedDict's order, and OrderedDict.update calls the __setitem__ of a subclass.
    for key, value in items.items():
        OrderedDict.__setitem__(target, key, value)


def dict_of(keys: tuple[Any, ...], hashes: tuple[int | None, ...], values: tuple[Any, ...]) -> dict[Any, Any]:
    """A dict of keys some of whose hashes are known: they are not asked again."""
    made: dict[Any, Any] = {}
    for key, hashed, value in zip(keys, hashes, values):
        if hashed is None:
            made[key] = value
        else:
            native.dict_set_known_hash(made, key, hashed, value)
    return made


def fill_method(cls: type) -> Any:
    """A function `(dict, items)` that puts items into a dict of class `cls` without asking methods of the class."""
    return fill_ordered if issubclass(cls, OrderedDict) else dict.update


def put_each(target: dict[Any, Any], items: dict[Any, Any]) -> None:
    """Put items into a dict one by one, by the hashes that are known, so that iterators over it find what they would
    find."""
    # dict.update gives an empty dict a new table, in which an iterator would find its end instead of an error.
    for (key, value), hashed in zip(items.items(), native.stored_hashes(items)):
        native.dict_set_known_hash(target, key, hashed, value)


def drop_ends(items: Any, first: int, last: int) -> None:
    """Take so many items from both ends of a list or deque."""
    for _ in range(last):
        items.pop()
    if isinstance(items, list):
        del items[:first]
        return
    for _ in range(first):
        items.popleft()
