"""Captures by way of the disk cache: for each key of a frame the latest records, sealed, in the folder that kernels are
kept in (backends/fuse/cache)."""

from __future__ import annotations

import marshal
from typing import Final

from framejit.backends.fuse.cache import disk_cache
from framejit.events import emit

KIND: Final = "capture"
MOST: Final = 8
"""Records under one key; the oldest go first."""


def may_have_some() -> bool:
    """Whether any records may have been kept, under whatever key."""
    return disk_cache.may_have(KIND)


def records(key: str) -> list[bytes]:
    """The records that were kept under a key, the latest last."""
    data = disk_cache.get(KIND, key)
    if data is None:
        return []
    try:
        found = marshal.loads(data)
        if type(found) is list and all(type(record) is bytes for record in found):
            return found
        reason = "it is no list of records"
    except (ValueError, EOFError, TypeError) as e:
        reason = f"{type(e).__name__}: {e}"
    tell_unused(key, f"what was found can't be used: {reason}")
    return []


def keep(key: str, record: bytes) -> None:
    """Keep a record besides those that are there. Of two processes that do so at once, one may be in vain."""
    others = [kept for kept in records(key) if kept != record]
    disk_cache.put(KIND, key, marshal.dumps([*others, record][-MOST:]))


def drop(key: str, record: bytes) -> None:
    """Keep a record no longer."""
    disk_cache.put(KIND, key, marshal.dumps([kept for kept in records(key) if kept != record]))


def tell_unused(key: str, reason: str) -> None:
    """An event: what is under a key is of no use."""
    emit("cache", what=KIND, hit=False, key=key, reason=reason)


def tell_kept(place: tuple[str, str, int]) -> None:
    """An event: a capture of a function, given by name, file and line, is kept."""
    emit("capture_kept", function=place[0], file=place[1], line=place[2], reason="")


def tell_not_kept(place: tuple[str, str, int], reason: str) -> None:
    """Events: it is not kept, and why."""
    emit("cache", what=KIND, hit=False, key="", reason=f"not kept: {reason}")
    emit("capture_kept", function=place[0], file=place[1], line=place[2], reason=reason)
