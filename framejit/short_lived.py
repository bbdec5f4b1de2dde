"""Functions whose entries go before they have served a call: they are for objects, as classes that each call makes,
which end before the next call comes."""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from framejit.config import config

_SHARE: Final = 4
"""How many times config.recompile_limit of such entries a function may have."""
_made: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def count_entry(owner: Any) -> int:
    """Note that an entry is made for its owner: how many that are."""
    made = _made[owner] = _made.get(owner, 0) + 1
    return made


def never_last(owner: Any) -> bool:
    """Whether an owner of entries has had more than it may have, and they have served fewer calls."""
    made = _made.get(owner, 0)
    return made > _SHARE * config.recompile_limit and bool(owner.hits < made)


def forget() -> None:
    """Count anew."""
    _made.clear()
