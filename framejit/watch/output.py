"""What the script wrote while a view had the terminal."""
from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import IO, Final

_IN_MEMORY: Final = 2**20
_SHOWN: Final = 2**14
_CHUNK: Final = 2**16


_END: Final = b"\x1b\\"


def new_sign() -> bytes:
    """What no output has in it by chance. A terminal that came to see it would show nothing."""
    return b"\x1b_framejit " + os.urandom(16).hex().encode() + b" "


def mark(sign: bytes, meaning: bytes) -> bytes:
    """A mark in a stream, which says one byte."""
    return sign + meaning + _END


class Output:
    """The script's output, byte for byte, until it can be shown; of its last lines there is a text."""

    def __init__(self) -> None:
        self._kept: IO[bytes] = tempfile.SpooledTemporaryFile(_IN_MEMORY)
        self._last = b""

    def keep(self, data: bytes) -> None:
        """Keep what comes behind the rest."""
        self._kept.write(data)
        self._last = (self._last + data)[-_SHOWN:]

    def taken(self) -> Iterator[bytes]:
        """All that is kept, in order; it is kept no longer."""
        self._kept.seek(0)
        while data := self._kept.read(_CHUNK):
            yield data
        self._kept.close()
        self._kept = tempfile.SpooledTemporaryFile(_IN_MEMORY)

    def last_lines(self, most: int) -> list[str]:
        """The last lines, as they are on a terminal when they have been written over from their beginning."""
        lines = self._last.decode(errors="replace").replace("\r\n", "\n").expandtabs().split("\n")
        if lines[-1] == "":
            lines.pop()
        return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines[-most:]] if most > 0 else []


class Marks:
    """Finds marks in a stream, as `mark` makes them."""

    def __init__(self, sign: bytes) -> None:
        self._sign, self._held = sign, b""

    def read(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The stream between marks, and the byte of the mark behind it (empty where none is)."""
        data = self._held + data
        self._held = b""
        while (at := data.find(self._sign)) >= 0 and len(data) >= at + len(self._sign) + 1 + len(_END):
            meant = at + len(self._sign)
            yield data[:at], data[meant : meant + 1]
            data = data[meant + 1 + len(_END) :]
        held = at if at >= 0 else len(data) - self._begun(data)
        self._held = data[held:]
        if held:
            yield data[:held], b""

    def rest(self) -> bytes:
        """What is held back as the beginning of a mark, when nothing follows."""
        held, self._held = self._held, b""
        return held

    def _begun(self, data: bytes) -> int:
        """How many bytes at the end may be the beginning of a mark."""
        return next((n for n in range(min(len(self._sign), len(data)), 0, -1) if self._sign.startswith(data[-n:])), 0)
