"""Paths on which each object holds the next, as told from the objects themselves."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from framejit.guards.sources import (
    AttrSource,
    DictSource,
    DictValueSource,
    GetItemSource,
    IndexSource,
    KeySource,
    Source,
)

Holder = tuple[Any, Any]
"""An object, and the name or index under which it holds the next one of a path."""


class NotHeldError(LookupError):
    """A step of a path leads to what nothing holds there, or of which that cannot be told."""


def holders(source: Source, root: Callable[[Source], tuple[Any, list[Holder]]]) -> list[Holder]:
    """All that a path of strong references consists of, the nearest last. `root` gives the object that the root of the
    path leads to, and what holds that. Raises NotHeldError where a step is no strong reference."""
    return _followed(source, root)[1]


def _followed(source: Source, root: Callable[[Source], tuple[Any, list[Holder]]]) -> tuple[Any, list[Holder]]:
    if source.base is None:
        return root(source)
    obj, found = _followed(source.base, root)
    match source:
        case DictSource():
            return _namespace(obj), [*found, (obj, "__dict__")]
        case AttrSource(attr=name):
            return _item(_namespace(obj), name), [*found, (obj, name), (_namespace(obj), name)]
        case KeySource(key=key) | GetItemSource(key=key):
            return _item(obj, key.value), [*found, (obj, key.value)]
        case IndexSource(index=index):
            return _item(obj, index), [*found, (obj, index)]
        case DictValueSource(index=index) if isinstance(obj, dict):
            return _item(list(dict.values(obj)), index), [*found, (obj, index)]
    raise NotHeldError(str(source))


def _item(obj: Any, key: Any) -> Any:
    """What a dict, list or tuple has under a key, its class not asked."""
    kind = next((kind for kind in (dict, list, tuple) if isinstance(obj, kind)), None)
    if kind is None:
        raise NotHeldError(key)
    try:
        return kind.__getitem__(obj, key)
    except LookupError:
        raise NotHeldError(key) from None


def _namespace(obj: Any) -> dict[str, Any]:
    """The `__dict__` of an instance, its class not asked."""
    found = object.__getattribute__(obj, "__dict__") if type(obj).__dictoffset__ else None
    if not isinstance(found, dict):
        raise NotHeldError(type(obj))
    return found
