"""Whether there is a terminal for a view, and the copy of it that the script writes to meanwhile."""
from __future__ import annotations

import fcntl
import os
import termios
from typing import Any, Final

from framejit.late_dataclass import dataclass

_OUTPUT, _LOCAL, _CHARACTERS = 1, 3, 6
"""Where in what termios gives the flags of output, the local ones and the special characters are."""
_WITHOUT_CURSOR: Final = ("", "dumb", "unknown")


class NoView(Exception):
    """There is no terminal that a view could be shown on; the text says why."""


@dataclass(frozen=True)
class Terminal:
    """The terminal that a view is shown on."""

    file: int
    """A file of it, of this module's own."""
    outputs: tuple[int, ...]
    """Which of standard output and standard error (1 and 2) go to it."""
    has_keyboard: bool
    """Whether standard input comes from it."""


def find_terminal() -> Terminal:
    """The terminal that the script would write to. Raises NoView where there is none that can show a view."""
    outputs = [number for number in (1, 2) if os.isatty(number)]
    if not outputs:
        raise NoView("neither standard output nor standard error is a terminal")
    if os.environ.get("TERM", "") in _WITHOUT_CURSOR:
        raise NoView("the terminal can't move its cursor (TERM)")
    first = outputs[0]
    if not in_foreground(first):
        raise NoView("the script runs in the background of its terminal")
    return Terminal(
        fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 3),
        tuple(number for number in outputs if _same(number, first)),
        os.isatty(0) and _same(0, first),
    )


def in_foreground(file: int) -> bool:
    """Whether this process may have the terminal for itself."""
    try:
        return os.tcgetpgrp(file) == os.getpgrp()
    except OSError:  # it controls no processes
        return True


def _same(one: int, other: int) -> bool:
    return os.fstat(one).st_rdev == os.fstat(other).st_rdev


def copy_of(file: int) -> tuple[int, int]:
    """A terminal like `file`: what is written to its second file comes out of the first as it was written, since the
    real one has yet to translate it."""
    master, slave = os.openpty()
    settings: list[Any] = termios.tcgetattr(file)
    settings[_OUTPUT] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    copy_size(file, master)
    return master, slave


def copy_size(file: int, master: int) -> None:
    """Give the copy the size that the terminal has now."""
    termios.tcsetwinsize(master, termios.tcgetwinsize(file))


class Keyboard:
    """The terminal's keys one by one, without echo, until `give_back`. Ctrl-C and its like stay signals."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._before = termios.tcgetattr(file)
        self.take()

    def take(self) -> None:
        """Take the keys, again."""
        settings: list[Any] = termios.tcgetattr(self._file)
        settings[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
        settings[_CHARACTERS][termios.VMIN], settings[_CHARACTERS][termios.VTIME] = 1, 0
        termios.tcsetattr(self._file, termios.TCSANOW, settings)

    def give_back(self) -> None:
        """Have the terminal as it was."""
        termios.tcsetattr(self._file, termios.TCSANOW, self._before)
