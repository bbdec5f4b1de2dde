"""FRAMEJIT_LOGS and `framejit.set_logs`: a listener that writes events to stderr, a stream or a file, as text or as
JSON lines."""
from __future__ import annotations

import atexit
import json
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TextIO

from framejit.errors import InvalidOption
from framejit.events.choice import Choice, Level, choose, help_text
from framejit.events.event import Event
from framejit.events.hub import subscribe
from framejit.late_dataclass import write_all

if TYPE_CHECKING:
    from framejit.events.text import Log


def logs() -> dict[str, Log]:
    """The logs of events, by name. How they are worded is imported by those who read one."""
    from framejit.events.text import LOGS

    return LOGS


def meanings() -> dict[str, str]:
    """The names `set_logs` and FRAMEJIT_LOGS take, and what they stand for."""
    return {
        **{name: log.meaning for name, log in logs().items()},
        "status": "what became of each function, at the end of the process",
    }


_OF_CAPTURES = frozenset(("graph", "guards", "bytecode"))


class LogWriter:
    """Writes the events of some kinds."""

    def __init__(self) -> None:
        self._choice = Choice()
        self._stream: TextIO | None = None
        self._file: TextIO | None = None
        self._functions: dict[int, str] = {}
        self._graphs: dict[Any, str] = {}  # by the number of a graph: the function it is of
        self._unsubscribe: Callable[[], None] = _nothing
        self._status: Callable[[], object] = _nothing
        self._writing = threading.Lock()

    def set(self, names: Iterable[str], stream: TextIO | None, status: Callable[[], object]) -> None:
        """Write the logs named from here on, and at the end of the process, where that is among them, what `status`
        gives."""
        self._status = status
        choice = choose(names, meanings())
        file = _open(choice.file) if choice.file is not None and choice.levels else None
        self._unsubscribe()
        self._unsubscribe = _nothing
        if self._file is not None:
            self._file.close()
        self._choice, self._stream, self._file = choice, stream, file
        self._graphs = {}
        if choice.help:
            (stream or sys.stderr).write(help_text(meanings()) + "\n")
        if choice.levels:
            self._unsubscribe = subscribe(self._hear)
        if "status" in choice.levels:
            write_all()

    def _hear(self, event: Event) -> None:
        where = self._where(event)
        for name, log in logs().items():
            level = self._choice.levels.get(name)
            if level is not None and log.kind == event.kind:
                text = log.write(event, where, level)
                self._write(name, text.splitlines()[0] if level is Level.BRIEF else text, event)

    def _where(self, event: Event) -> str:
        """The function an event is about."""
        frame_id: Any = event.fields.get("frame_id")
        if event.kind in ("capture_started", "capture_found"):
            self._functions[frame_id] = f"{event.function} ({event.file}:{event.line})"
        where = self._functions.get(frame_id, "")
        if event.kind in ("graph", "capture_found"):
            self._graphs[event.graph_id] = where
        elif event.kind in ("fusion", "training", "output_code", "perf", "launch_graph"):
            where = self._graphs.get(event.fields.get("graph_id"), "")
        elif event.kind == "frame_done":
            self._functions.pop(frame_id, None)
        return where

    def _write(self, name: str, text: str, event: Event | None) -> None:
        """One message, each line with the name of its log in front, so that `grep` finds all of it."""
        if self._choice.json:
            written = json.dumps(_record(name, text, event), default=repr) + "\n"
        else:
            written = "".join(f"[framejit {name}] {line}\n" for line in text.splitlines())
        with self._writing:
            stream = self._file or self._stream or sys.stderr
            stream.write(written)
            if self._file is not None:
                self._file.flush()

    @property
    def shows_captures(self) -> bool:
        """Whether a log is written that shows what only capturing brings to light."""
        return not _OF_CAPTURES.isdisjoint(self._choice.levels)

    def finish(self) -> None:
        """At the end of the process."""
        if "status" in self._choice.levels:
            self._write("status", str(self._status()), None)


def _record(name: str, text: str, event: Event | None) -> dict[str, Any]:
    """An event as JSON: its text, and the fields that are not the program's objects."""
    if event is None:
        return {"log": name, "text": text}
    kept = event.without_transient()
    return {
        **kept.fields, "log": name, "kind": event.kind, "time_ns": event.time_ns, "thread": event.thread,
        "text": text,
    }


def _open(path: str) -> TextIO:
    try:
        return open(path, "a", encoding="utf-8")
    except OSError as e:
        raise InvalidOption(f"the logs can't be written to {path!r}: {e.strerror}") from e


def _nothing() -> None:
    return None


def split_names(names: Iterable[str]) -> list[str]:
    """`"guards,graph", "status"` as three names."""
    return [part.strip() for name in names for part in name.split(",") if part.strip()]


log_writer = LogWriter()
atexit.register(log_writer.finish)
