"""`framejit.save` and `framejit.load`: captures, plans and kernels in one file, for other machines of the same kind.

The file is sealed like the entries of the disk cache, and holds these as they are, each under its own seal. What is in
it is used only where its key is asked for: by the same program at the same paths, with the same versions, on a machine
of the same kind. The head of the file says for what it was made, so that a misfit is told and not merely never found.
"""

from __future__ import annotations

import json
import os
import platform
import stat
from typing import Any, Final

import torch

from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_entry import seal, unseal
from framejit.backends.fuse.cache.cache_folder import Refused
from framejit.errors import ArchiveError
from framejit.events import warn
from framejit.version import __version__

_KIND: Final = "archive"
_KEY: Final = "framejit"
_LENGTH: Final = 8
"""Bytes of the number in front that says how long the head is."""
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


def save(path: str | os.PathLike[str], *, everything: bool = False) -> int:
    """Write what this process has kept or found on the disk (captures, plans, kernels) to one file, for
    `framejit.load` on other machines of the same kind. Gives how many entries that are.

    `path` is a file, or a URL of any file system that the package fsspec knows (`s3://bucket/warm.framejit`). With
    `everything` all that lies in the cache folder is written, of whatever process.

    Raises ArchiveError where the cache is not used or nothing can be written.
    """
    cache = disk_cache.current()
    try:
        found = cache.sealed(None if everything else cache.used())
    except (OSError, Refused) as e:
        raise ArchiveError(f"the folder {cache.folder} can't be used: {getattr(e, 'strerror', None) or e}") from None
    head = json.dumps({"made_for": made_for(), "entries": [[name, len(data)] for name, data in found.items()]}).encode()
    payload = b"".join([len(head).to_bytes(_LENGTH, "big"), head, *found.values()])
    _write(os.fspath(path), seal(_KIND, _KEY, payload))
    return len(found)


def load(path: str | os.PathLike[str]) -> int:
    """Put what `framejit.save` wrote into this user's cache folder, where calls from now on find it. Gives how many
    entries that are: 0, with one warning that says what differs, where the file was made for another kind of machine
    or other versions.

    The file holds machine code: load only what you would run. A file that other users can write to is refused.

    Raises ArchiveError for a file that can't be read, is torn or was changed, or is none of framejit's.
    """
    name = os.fspath(path)
    made, entries = _read(name)
    differences = [
        f"{what} is {now} here and {made.get(what)} there" for what, now in made_for().items() if made.get(what) != now
    ]
    if differences:
        warn(f"nothing is loaded from {name}, which was made for something else: {'; '.join(differences)}")
        return 0
    cache = disk_cache.current()
    try:
        return cache.add(entries)
    except ValueError as e:
        raise ArchiveError(f"{name} can't be loaded: {e}") from None
    except (OSError, Refused) as e:
        raise ArchiveError(f"the folder {cache.folder} can't be used: {getattr(e, 'strerror', None) or e}") from None


def made_for() -> dict[str, str]:
    """The versions and the kind of machine that what is kept here is good for."""
    gpus = set()
    if torch.cuda.is_available():
        gpus = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
    return {
        "framejit": __version__, "Python": platform.python_version(), "torch": str(torch.__version__),
        "the system": f"{platform.system()} {platform.machine()}",
        "the processor": torch.backends.cpu.get_cpu_capability(), "GPUs": ", ".join(sorted(gpus)) or "none",
    }


def _read(name: str) -> tuple[dict[str, Any], dict[str, bytes]]:
    payload = unseal(_KIND, _KEY, _bytes_of(name))
    if payload is None:
        raise ArchiveError(f"{name} is no file of framejit.save, or is torn or was changed")
    try:
        end = _LENGTH + int.from_bytes(payload[:_LENGTH], "big")
        head = json.loads(payload[_LENGTH:end])
        entries = dict[str, bytes]()
        for entry, length in head["entries"]:
            entries[str(entry)] = payload[end : end + int(length)]
            end += int(length)
        made = dict(head["made_for"])
    except (ValueError, KeyError, TypeError) as e:
        raise ArchiveError(f"{name} can't be read: {type(e).__name__}: {e}") from None
    if end != len(payload):
        raise ArchiveError(f"{name} can't be read: it is longer or shorter than it says")
    return made, entries


def _bytes_of(name: str) -> bytes:
    try:
        if "://" in name:
            with _file_system(name).open(name, "rb") as remote:
                return bytes(remote.read())
        with open(name, "rb") as file:
            info = os.fstat(file.fileno())
            if info.st_uid not in (os.geteuid(), 0) or info.st_mode & _OTHERS_MAY_WRITE:
                raise ArchiveError(f"{name} is refused: other users own it or can write to it")
            return file.read()
    except OSError as e:
        raise ArchiveError(f"{name} can't be read: {e.strerror or e}") from None


def _write(name: str, data: bytes) -> None:
    """Whole or not at all, where the file system can do that."""
    try:
        if "://" in name:
            with _file_system(name).open(name, "wb") as remote:
                remote.write(data)
            return
        temporary = f"{name}.{os.getpid()}.tmp"
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
        try:
            with open(file, "wb") as local:
                local.write(data)
            os.replace(temporary, name)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as e:
        raise ArchiveError(f"{name} can't be written: {e.strerror or e}") from None


def _file_system(name: str) -> Any:
    try:
        import fsspec  # no requirement of framejit's
    except ImportError:
        raise ArchiveError(f"{name} needs the package fsspec, which is not installed") from None
    return fsspec
