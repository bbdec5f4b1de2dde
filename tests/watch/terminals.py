"""Programs on a terminal of their own, read as a person would."""
from __future__ import annotations

import os
import pty
import re
import select
import sys
import termios
import time
from collections.abc import Callable

SIZE = (40, 130)
_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FOOT = "q: leave the view"
_LEFT = "\x1b[?1049l"
_LAST_PICTURE = re.compile(r"╭─+ framejit run --watch .*", re.S)


class OnTerminal:
    """`python arguments...` as the leader of a session on a terminal that is 130 columns wide."""

    def __init__(self, *arguments: object, folder: object = None, **environment: str) -> None:
        self.pid, self._file = pty.fork()
        if self.pid == 0:
            try:
                termios.tcsetwinsize(0, SIZE)
                if folder is not None:
                    os.chdir(str(folder))
                os.environ.update({"TERM": "xterm-256color", "FRAMEJIT_COMPILE_AFTER": "0", **environment})
                os.execv(sys.executable, [sys.executable, *map(str, arguments)])
            finally:
                os._exit(127)
        self.written = b""
        self._is_open = True

    @property
    def text(self) -> str:
        return self.written.decode(errors="replace")

    @property
    def screen(self) -> str:
        """The picture that was drawn last, as a whole."""
        pictures = reversed(self.text.split("\x1b[H"))
        return _SEQUENCE.sub("", next((picture for picture in pictures if _FOOT in picture), ""))

    @property
    def output(self) -> str:
        """What the program has left on the terminal: what stands there once the view is gone, without its picture."""
        text = self.text.rpartition(_LEFT)[2]
        return _LAST_PICTURE.sub("", _SEQUENCE.sub("", text))

    def press(self, keys: str) -> None:
        os.write(self._file, keys.encode())

    def wait_for(self, condition: Callable[[OnTerminal], object]) -> None:
        """Read until the condition holds."""
        deadline = time.monotonic() + 120
        while not condition(self):
            assert self._is_open and time.monotonic() < deadline, self.text[-4000:]
            self._read(1.0)

    def close(self) -> None:
        """As when a person closes the window."""
        os.close(self._file)
        self._is_open = False

    def wait(self) -> int:
        """Read all there is. The exit code, negative where a signal ended the program."""
        deadline = time.monotonic() + 120
        while self._is_open:
            assert time.monotonic() < deadline, self.text[-4000:]
            self._read(1.0)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def _read(self, seconds: float) -> None:
        if select.select([self._file], [], [], seconds)[0]:
            try:
                read = os.read(self._file, 2**16)
            except OSError:  # how a terminal of Linux says that nobody writes to it any more
                read = b""
            self.written += read
            if not read:
                self.close()


def watch(*arguments: object, folder: object, **environment: str) -> OnTerminal:
    """A script under `framejit run --watch`."""
    return OnTerminal("-m", "framejit", "run", "--watch", *arguments, folder=folder, **environment)
