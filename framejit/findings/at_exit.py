"""The report of `framejit explain`: written when the script ends, however it ends."""
from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from framejit.findings import rewrites, sarif, schema  # noqa: F401  a module that is first imported at exit can spoil the exit code of Ctrl-C
from framejit.findings.explanation import Explanation

_LEAVING = ("_exit", "execv", "execve")
"""Functions of `os` that end the program without its exit handlers."""


class ReportAtExit:
    """Explains the program from now on, and calls `write` with the explanation once, when this process ends. Forked children are silent."""

    def __init__(self, write: Callable[[Explanation], Any]) -> None:
        self._write, self._process, self._written = write, os.getpid(), False
        self._explanation = Explanation()
        self._listening = self._explanation.listen()
        atexit.register(self.finish)
        for name in _LEAVING:
            setattr(os, name, self._before(getattr(os, name)))

    def _before(self, leave: Callable[..., Any]) -> Callable[..., NoReturn]:
        def finish_and_leave(*args: Any) -> NoReturn:
            self.finish()
            leave(*args)
            raise AssertionError("the process has ended")

        finish_and_leave.__name__ = leave.__name__
        return finish_and_leave

    def finish(self) -> None:
        """Write the report, if that was not done. Nothing that goes wrong here may change how the script ends."""
        if self._written or os.getpid() != self._process:
            return
        self._written = True
        try:
            self._listening.stop()
            try:
                self._explanation.find_rewrites()
            except KeyboardInterrupt:
                say("interrupted: some rewrites were not looked for")
            self._write(self._explanation)
        except OSError as e:
            say(f"the report could not be written: {e}")


def say(text: str) -> None:
    """What framejit has to tell the person at the terminal: on standard error, since standard output is the script's."""
    sys.stderr.write("".join(f"[framejit] {line}".rstrip() + "\n" for line in text.splitlines()))
    sys.stderr.flush()
