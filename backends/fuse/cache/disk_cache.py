"""Compiled kernels and plans, kept on disk from one process to the next.

A store of bytes by kind and key, where the key is a hash over everything the bytes depend on (`cache_key.key_of`), so
that an entry never goes stale: it is only used less, and removed some day. Any number of processes and threads may use
one folder. The cache is a convenience: nothing it meets on the disk may keep a program from running, so that trouble
ends in a miss, or in one warning and no cache for the rest of the process.
"""
from __future__ import annotations

import os
import random
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from framejit.backends.fuse.cache import cache_folder
from framejit.backends.fuse.cache.cache_entry import seal, unseal
from framejit.backends.fuse.cache.cache_folder import Refused
from framejit.config import config
from framejit.events import emit, warn
from framejit.late_dataclass import dataclass

ABANDONED_AFTER: Final = 3600.0
"""Seconds after which a file that is still being written must be a dead process's."""

_ENTRY: Final = re.compile(r"([a-z]+)-([0-9a-f]{64})")
_USED_LATELY: Final = 60.0  # seconds; an entry's time of use is not written more often than that
_KEPT: Final = 0.75  # the share of the limit that is left when the folder is pruned
_SLACK: Final = 1 / 32  # the share of the limit that is written between two prunings, on average
_TICK_NS: Final = 1_000_000_000  # of file systems' clocks; within one, two changes may look like one
_LARGEST: Final = 1 / 4  # the share of the limit that one entry may take


def get(kind: str, key: str) -> bytes | None:
    """The data that was put under a kind (lower-case letters) and a key (`key_of`), by whatever process of this user;
    None if nothing is there."""
    return current().get(kind, key)


def may_have(kind: str) -> bool:
    """Whether there may be data of a kind."""
    return current().may_have(kind)


def put(kind: str, key: str, data: bytes) -> None:
    """Keep `data` for `get`. It may be gone at any later time."""
    current().put(kind, key, data)


def current() -> DiskCache:
    """The cache that `framejit.config` names."""
    return _cache_in(config.cache_dir, config.cache_size)


@cache
def _cache_in(folder: str, limit: int) -> DiskCache:
    return DiskCache(os.path.abspath(os.path.expanduser(folder)) if folder else default_folder(), limit)


def default_folder() -> str:
    """The folder for a user who has not named one."""
    for base in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(base):
            return os.path.join(base, "framejit")
    # a user without a home; nobody else's folder of that name is used
    return os.path.join(tempfile.gettempdir(), f"framejit-{os.geteuid()}")


@dataclass(frozen=True)
class CacheInfo:
    """The entries of a cache folder, counted by kind, and the bytes they take."""

    folder: str
    limit: int
    """Bytes."""
    entries: dict[str, int]
    """How many there are of each kind."""
    sizes: dict[str, int]
    """How many bytes the entries of each kind have."""
    refused: str
    """Why the folder is not used; empty if it is."""

    @property
    def size(self) -> int:
        """Bytes of all entries together."""
        return sum(self.sizes.values())

    def __str__(self) -> str:
        lines = [f"folder   {self.folder}", f"size     {_megabytes(self.size)} of at most {_megabytes(self.limit)}"]
        lines += [
            f"entries  {count} {kind}, {_megabytes(self.sizes[kind])}" for kind, count in sorted(self.entries.items())
        ] or ["entries  none"]
        return "\n".join([*lines, f"not used: {self.refused}"] if self.refused else lines)


class DiskCache:
    """The entries in one folder, of which about `limit` bytes are kept: those used last. With a limit of 0 nothing is
    read or written."""

    def __init__(self, folder: str, limit: int) -> None:
        self.folder, self.limit = folder, limit
        self._may_read = self._may_write = limit > 0
        # Most processes write little, and shouldn't each go through the folder: where in its turn this one starts is
        # left to chance.
        self._used: dict[str, None] = {}
        self._seen: set[str] = set()
        self._unseen: dict[str, int] = {}
        """By kinds of which there are no entries when the folder was changed last."""
        self._until_pruned = random.SystemRandom().random() * limit * _SLACK

    def get(self, kind: str, key: str) -> bytes | None:
        """The data that was put under a kind and a key; None if nothing is there."""
        if not self._may_read:
            return None
        data, reason = self._get(kind, key, _name(kind, key))
        if data is not None:
            self._used[_name(kind, key)] = None
        emit("cache", what=kind, hit=data is not None, key=key, reason=reason)
        return data

    def _get(self, kind: str, key: str, name: str) -> tuple[bytes | None, str]:
        """The data; where there is a file that doesn't hold any, also what is wrong with it."""
        try:
            with cache_folder.opened(self.folder) as folder:
                found = cache_folder.read(folder, name)
                if found is None:
                    return None, ""
                data = unseal(kind, key, found[0])
                if data is None:
                    cache_folder.remove(folder, name)
                    return None, "its file is torn, was changed, or has another format"
                if found[1] < time.time() - _USED_LATELY:
                    cache_folder.touch(folder, name)
                return data, ""
        except Refused as e:
            self._refuse(e)
        except OSError:  # no such folder, mostly
            pass
        return None, ""

    def may_have(self, kind: str) -> bool:
        """Whether there may be entries of a kind: also where the folder can't be read, which `get` tells of."""
        if kind in self._seen or not self._may_read:
            return self._may_read
        try:
            changed = os.stat(self.folder).st_mtime_ns
            if self._unseen.get(kind) == changed:
                return False
            with os.scandir(self.folder) as files:
                found = any(file.name.startswith(f"{kind}-") for file in files)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        if found:
            self._seen.add(kind)
        elif changed < time.time_ns() - _TICK_NS:
            self._unseen[kind] = changed
        return found

    def put(self, kind: str, key: str, data: bytes) -> None:
        """Keep `data`, unless it is large beside the limit."""
        name = _name(kind, key)
        if not self._may_write or len(data) > self.limit * _LARGEST:
            return
        sealed = seal(kind, key, data)
        try:
            with cache_folder.opened(self.folder, create=True) as folder:
                cache_folder.write(folder, name, sealed)
                self._used[name] = None
                self._until_pruned -= len(sealed)
                if self._until_pruned < 0:
                    self._until_pruned = self.limit * _SLACK
                    self._prune(folder)
        except Refused as e:
            self._refuse(e)
        except FileNotFoundError:  # somebody cleared the folder
            pass
        except OSError as e:
            self._may_write = False
            warn(
                f"compiled kernels and plans can't be kept in {self.folder} ({e.strerror or e}); another folder can be "
                "set with FRAMEJIT_CACHE_DIR"
            )

    def _refuse(self, why: Refused) -> None:
        self._may_read = self._may_write = False
        warn(
            f"the folder {self.folder} for compiled kernels is not used: {why}; another folder can be set with "
            "FRAMEJIT_CACHE_DIR"
        )

    def _prune(self, folder: int) -> None:
        """Remove what was used longest ago, if there is too much, and what dead processes left half written."""
        files, now = cache_folder.files(folder), time.time()
        for name, info in files:
            if name.startswith(cache_folder.TEMPORARY) and info.st_mtime < now - ABANDONED_AFTER:
                cache_folder.remove(folder, name)
        entries = sorted(
            ((info.st_mtime, info.st_size, name) for name, info in files if _ENTRY.fullmatch(name)), reverse=True
        )
        size = sum(size for _, size, _ in entries)
        if size <= self.limit:
            return
        while entries and size > self.limit * _KEPT:
            _, gone, name = entries.pop()
            cache_folder.remove(folder, name)
            size -= gone

    def used(self) -> list[str]:
        """The names of the entries that this process has put there or taken out."""
        return list(self._used)

    def sealed(self, names: Iterable[str] | None = None) -> dict[str, bytes]:
        """The entries of these names that are there, or of all, under their seals. Raises Refused and OSError."""
        found: dict[str, bytes] = {}
        if not self._may_read:
            raise Refused("its limit is 0 bytes, or it was refused before")
        try:
            with cache_folder.opened(self.folder) as folder:
                if names is None:
                    names = [name for name, _ in cache_folder.files(folder)]
                for name in sorted(names):
                    match = _ENTRY.fullmatch(name)
                    held = cache_folder.read(folder, name) if match else None
                    if match and held is not None and unseal(match[1], match[2], held[0]) is not None:
                        found[name] = held[0]
        except FileNotFoundError:
            pass
        return found

    def add(self, entries: Mapping[str, bytes]) -> int:
        """Put entries there that `sealed` gave on another machine: how many. Raises ValueError, with nothing put there,
        if one of them is not what was sealed under its name; Refused and OSError."""
        for name, data in entries.items():
            match = _ENTRY.fullmatch(name)
            if match is None or unseal(match[1], match[2], data) is None:
                raise ValueError(f"what it has under {name[:24]!r} is torn or was changed")
        if not self._may_write:
            raise Refused("its limit is 0 bytes, or it was refused before")
        with cache_folder.opened(self.folder, create=True) as folder:
            for name, data in entries.items():
                cache_folder.write(folder, name, data)
        return len(entries)

    def clear(self) -> tuple[int, int]:
        """Remove all entries: how many that were, and their bytes. Files that are no entries stay. Raises Refused and
        OSError."""
        count = size = 0
        try:
            with cache_folder.opened(self.folder) as folder:
                for name, info in cache_folder.files(folder):
                    if (_ENTRY.fullmatch(name) or name.startswith(cache_folder.TEMPORARY)) and cache_folder.remove(
                        folder, name
                    ):
                        count, size = count + 1, size + info.st_size
        except FileNotFoundError:
            pass
        return count, size

    def info(self) -> CacheInfo:
        """The entries there are now. Raises OSError if the folder can't be read."""
        entries: dict[str, int] = {}
        sizes: dict[str, int] = {}
        refused = "" if self.limit else "its limit is 0 bytes"
        try:
            with cache_folder.opened(self.folder) as folder:
                for name, status in cache_folder.files(folder):
                    if match := _ENTRY.fullmatch(name):
                        entries[match[1]] = entries.get(match[1], 0) + 1
                        sizes[match[1]] = sizes.get(match[1], 0) + status.st_size
        except FileNotFoundError:
            pass
        except Refused as e:
            refused = str(e)
        return CacheInfo(self.folder, self.limit, entries, sizes, refused)


def _name(kind: str, key: str) -> str:
    name = f"{kind}-{key}"
    if not _ENTRY.fullmatch(name):
        raise ValueError(f"{name!r} is no kind in lower-case letters and key of `key_of`")
    return name


def _megabytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"
