"""A folder of files that only this user can have written: opened, read and written so that nobody else can slip
anything in.

Machine code is loaded from here, so a folder or a file that another user could have changed is not looked into. The
folder is opened anew for each access and checked on the open descriptor, through which the files are then reached: what
was checked is what is read, whatever is renamed meanwhile, and nothing has to be kept open across forks.
"""
from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from typing import Final

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that are being written."""

_NOT_OURS: Final = (errno.ELOOP, errno.EACCES, errno.ENXIO)  # a symbolic link, a file that may not be read, a socket
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class Refused(Exception):
    """The folder is not this user's alone, for the reason given."""


@contextlib.contextmanager
def opened(path: str, *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder, for the `dir_fd` of the functions below. Raises Refused, and OSError where there is
    none or none can be made."""
    if create:
        os.makedirs(path, mode=0o700, exist_ok=True)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(path, folder)
        yield folder
    finally:
        os.close(folder)


def _check(path: str, folder: int) -> None:
    link, info, user = os.lstat(path), os.fstat(folder), os.geteuid()
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (user, 0):
        raise Refused("it is a link that another user made")
    if info.st_uid != user:
        raise Refused("it belongs to another user")
    if info.st_mode & _OTHERS_MAY_WRITE and not info.st_mode & stat.S_ISVTX:
        raise Refused(
            f"other users can write to it (mode {stat.S_IMODE(info.st_mode):03o}); `chmod go-w` makes it safe"
        )


def read(folder: int, name: str) -> tuple[bytes, float] | None:
    """The content of a file, and when it was last written or used (seconds since the epoch); None if there is none.

    A file that others own or can write to, or that is no plain file, counts as none and is removed where that is
    possible. Raises OSError.
    """
    try:
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as e:
        if e.errno not in _NOT_OURS:
            raise
        remove(folder, name)
        return None
    try:
        info = os.fstat(file)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & _OTHERS_MAY_WRITE:
            remove(folder, name)
            return None
        return _read_all(file, info.st_size), info.st_mtime
    finally:
        os.close(file)


def _read_all(file: int, size: int) -> bytes:
    parts: list[bytes] = []
    while size > 0 and (part := os.read(file, size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def write(folder: int, name: str, data: bytes) -> None:
    """Write a file that is there whole or not at all, even for those who read or write the same name now. Raises
    OSError.

    It is not forced to the disk: what a crash tears is found out when it is read.
    """
    temporary = f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(file, rest) :]
        finally:
            os.close(file)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        remove(folder, temporary)
        raise


def touch(folder: int, name: str) -> None:
    """Note that a file was used."""
    with contextlib.suppress(OSError):  # it is gone, or can't be written: it is forgotten earlier than others then
        os.utime(name, dir_fd=folder, follow_symlinks=False)


def remove(folder: int, name: str) -> bool:
    """Remove a file; False if it is not there or must stay."""
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    return True


def files(folder: int) -> list[tuple[str, os.stat_result]]:
    """The names in the folder, with what is known of the files. Those that vanish meanwhile are left out."""
    found: list[tuple[str, os.stat_result]] = []
    with os.scandir(folder) as listing:
        for file in listing:
            with contextlib.suppress(OSError):  # it is gone
                found.append((file.name, file.stat(follow_symlinks=False)))
    return found
