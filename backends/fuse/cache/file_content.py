"""A hash over what files hold, which is the same on each machine that has them."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from typing import Final

from framejit.backends.fuse.cache import disk_cache

_KIND: Final = "sources"


@cache
def content_of(paths: tuple[str, ...]) -> str:
    """The hash over the names, without folders, and the content of files.

    Several are read anew only where the size or time of one has changed since a process kept the hash in the disk
    cache: some hundred files take longer to read than a second process has.
    """
    return _hash_over(paths, "") if len(paths) == 1 else _known_hash(paths, "")


def content_below(folder: str) -> str:
    """The same over the Python files below a folder and their names, with the folders in it."""
    return _known_hash(tuple(python_files(folder)), folder)


def python_files(folder: str) -> list[str]:
    """The Python files in a folder and those below it, in an order that is the same everywhere."""
    found: list[str] = []
    with os.scandir(folder) as listing:
        for item in sorted(listing, key=lambda item: item.name):
            if item.name.endswith(".py"):
                found.append(item.path)
            elif item.is_dir() and item.name not in ("__pycache__", "native"):
                found += python_files(item.path)
    return found


def _known_hash(paths: tuple[str, ...], home: str) -> str:
    stamps = [(path, info.st_size, info.st_mtime_ns) for path in paths for info in [os.stat(path)]]
    key = hashlib.sha256(repr((stamps, home)).encode()).hexdigest()
    known = disk_cache.get(_KIND, key)
    if known is not None:
        return known.decode()
    found = _hash_over(paths, home)
    disk_cache.put(_KIND, key, found.encode())
    return found


def _hash_over(paths: tuple[str, ...], home: str) -> str:
    """Names are those below `home`, or without folders."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        name = os.path.relpath(path, home) if home else os.path.basename(path)
        digest.update(f"{name} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
