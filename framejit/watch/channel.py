"""What the script's process and the viewer have agreed on."""
from __future__ import annotations

import marshal
import socket
import struct
from collections.abc import Iterator
from typing import Any, Final

READS, ENDS = b"r", b"e"
"""Marks in the output: the script is about to read from the terminal; it ends."""
EVERY_S: Final = 0.25
"""Between two times that there is something to tell, or to draw."""
_LENGTH: Final = struct.Struct("I")


def send(channel: socket.socket, told: bytes) -> None:
    """Tell something, written by marshal; without the signal that a program may die by. Raises OSError when nobody
    listens."""
    data = _LENGTH.pack(len(told)) + told
    while data:
        data = data[channel.send(data, socket.MSG_NOSIGNAL) :]


class Heard:
    """What was told, put together from what came of it."""

    def __init__(self) -> None:
        self._data = b""

    def read(self, data: bytes) -> Iterator[Any]:
        """All that is complete by now."""
        self._data += data
        while len(self._data) >= _LENGTH.size:
            length, = _LENGTH.unpack_from(self._data)
            end = _LENGTH.size + length
            if len(self._data) < end:
                break
            told, self._data = self._data[_LENGTH.size : end], self._data[end:]
            yield marshal.loads(told)
