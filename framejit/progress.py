"""What takes long, as one line on a terminal: `[framejit] compiling f (model.py:3): 4 s`. It goes when the work is
done; a pipe gets nothing."""
from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

from framejit.late_dataclass import dataclass

AFTER, EVERY = 1.0, 0.5
"""Seconds of work before anything is shown, and between two changes of the line."""
_CLEAR = "\r\x1b[K"


@dataclass(eq=False)
class _Task:
    text: Callable[[], str]
    stream: TextIO
    started: float


class Progress:
    """The tasks under way, and the thread that shows them. It lives only while there are tasks and a terminal."""

    def __init__(self) -> None:
        self._tasks: list[_Task] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._shown_on: TextIO | None = None
        self.is_shown_elsewhere = False
        """Whether people see what is being done without a line."""

    @contextmanager
    def doing(self, text: Callable[[], str]) -> Iterator[None]:
        """For the time of the block, `text()` is what is being done. Blocks may be nested: the line names all of
        them."""
        stream = sys.stderr
        if self.is_shown_elsewhere or not _is_terminal(stream):
            yield
            return
        task = _Task(text, stream, monotonic())
        with self._changed:
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._show, name="framejit progress", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._changed:
                self._tasks.remove(task)
                self._clear()  # by this thread, before it goes on to print something itself
                self._changed.notify()

    def _show(self) -> None:
        with self._changed:
            while self._tasks:
                now, first = monotonic(), self._tasks[0]
                elapsed = now - first.started
                if elapsed >= AFTER:
                    self._write(
                        first.stream, f"[framejit] {', '.join(task.text() for task in self._tasks)}: {elapsed:.0f} s"
                    )
                self._changed.wait(EVERY if elapsed >= AFTER else AFTER - elapsed)
            self._thread = None

    def _write(self, stream: TextIO, line: str) -> None:
        columns = shutil.get_terminal_size().columns
        try:
            stream.write(_CLEAR + line[: columns - 1])
            stream.flush()
            self._shown_on = stream
        except (OSError, ValueError):  # the terminal is gone
            self._shown_on = None

    def _clear(self) -> None:
        if self._shown_on is not None:
            try:
                self._shown_on.write(_CLEAR)
                self._shown_on.flush()
            except (OSError, ValueError):
                pass
            self._shown_on = None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (AttributeError, ValueError):  # replaced by something that is no file, or closed
        return False


progress = Progress()
doing = progress.doing
