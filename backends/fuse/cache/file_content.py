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
    if len(paths) == 1:
        return _hash_over(paths)
    stamps = [(path, info.st_size, info.st_mtime_ns) for path in paths for info in [os.stat(path)]]
    key = hashlib.sha256(repr(stamps).encode()).hexdigest()
    known = disk_cache.get(_KIND, key)
    if known is not None:
        return known.decode()
    found = _hash_over(paths)
    disk_cache.put(_KIND, key, found.encode())
    return found


def _hash_over(paths: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            content = file.read()
        digest.update(f"{os.path.basename(path)} {len(content)} ".encode())
        digest.update(content)
    return digest.hexdigest()
