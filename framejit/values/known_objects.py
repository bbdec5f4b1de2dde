"""Methods of existing C objects that are safe to run while capturing, because they only read immutable state."""
from __future__ import annotations

import re
from typing import TYPE_CHECKING

from framejit.values.base import Value
from framejit.values.folding import fold
from framejit.values.signals import Unsupported

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame
    from framejit.values.user_object import ObjectValue

_PURE: dict[type, frozenset[str]] = {
    re.Pattern: frozenset(("match", "search", "fullmatch", "findall", "sub", "split")),
    re.Match: frozenset(("group", "groups", "start", "end", "span", "groupdict")),
}


def call_known_method(tx: "Frame", owner: "ObjectValue", name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name in _PURE.get(owner.cls, ()):
        return fold(tx, getattr(owner.obj, name), args, kwargs)
    raise Unsupported(f"method {name!r} of {owner.describe()} is written in C", "FJ111")
