"""FRAMEJIT_LOGS and `framejit.set_logs`: listeners that write events to a stream, by default stderr."""
from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

from framejit.errors import InvalidOption
from framejit.events.event import Event
from framejit.events.hub import subscribe
from framejit.events.text import WRITERS
from framejit.suggest import did_you_mean

NAMES = (*WRITERS, "status", "all")
"""The names `set_logs` and FRAMEJIT_LOGS take."""


class LogWriter:
    """Writes the events of some kinds."""

    def __init__(self) -> None:
        self._names: frozenset[str] = frozenset()
        self._stream: TextIO | None = None
        self._functions: dict[int, str] = {}
        self._unsubscribe: Callable[[], None] = _nothing

    def set(self, names: Iterable[str], stream: TextIO | None = None) -> None:
        chosen = frozenset(names)
        unknown = sorted(chosen.difference(NAMES))
        if unknown:
            raise InvalidOption(f"there is no log {unknown[0]!r}{did_you_mean(unknown[0], NAMES)}")
        self._unsubscribe()
        self._unsubscribe = _nothing
        self._names, self._stream = frozenset(NAMES) if "all" in chosen else chosen, stream
        if self._names:
            self._unsubscribe = subscribe(self._hear)

    def _hear(self, event: Event) -> None:
        frame_id: Any = event.fields.get("frame_id")
        if event.kind == "capture_started":
            self._functions[frame_id] = f"{event.function} ({event.file}:{event.line})"
        where = self._functions.get(frame_id, "")
        if event.kind == "frame_done":
            self._functions.pop(frame_id, None)
        for name, (kind, text) in WRITERS.items():
            if name in self._names and kind == event.kind:
                self.write(name, text(event, where))

    def write(self, name: str, text: str) -> None:
        """One message, each line with the name of its log in front, so that `grep` finds all of it."""
        stream = self._stream or sys.stderr
        stream.write("".join(f"[framejit {name}] {line}\n" for line in text.splitlines()))

    def finish(self) -> None:
        """At the end of the process."""
        if "status" in self._names:
            from framejit.api import status

            self.write("status", str(status()))


def _nothing() -> None:
    return None


def split_names(names: Iterable[str]) -> list[str]:
    """`"guards,graph", "status"` as three names."""
    return [part.strip() for name in names for part in name.split(",") if part.strip()]


log_writer = LogWriter()
atexit.register(log_writer.finish)
