"""A finding: a place where the compiler could not do its best, what that cost, why it is so and what helps."""
from __future__ import annotations

import sys
from dataclasses import field
from types import FrameType
from typing import Any

from framejit.events import Event
from framejit.events.place import Place
from framejit.events.text import callers
from framejit.findings.evidence import is_library
from framejit.late_dataclass import dataclass

Key = tuple[str, int, int | None, int | None, str]


@dataclass
class NextBreak:
    """The first graph break that is left once a rewrite is applied."""

    code: str
    line: int
    source: str
    reason: str


@dataclass
class Finding:
    """One place at which graphs break."""

    code: str
    file: str
    line: int
    column: int | None
    """In UTF-8 bytes from 0, as in `ast`."""
    end_line: int | None
    end_column: int | None
    function: str
    reason: str
    provenance: str
    """Where the values came from that the broken expression works on."""
    hint: str
    callers: list[tuple[str, int, str]]
    """The calls that led to it, as (file, line, function), innermost first."""
    excerpt: str
    """The source line, and below it a line of carets under the broken expression."""
    count: int = 1
    """How often it ran; where that was not measured, how often a capture met it."""
    captures: int = 1
    """How often a capture met it: the number of its `graph_break` events."""
    cost_us: float = 0.0
    """The time between leaving the graph before and entering the graph after, in all runs, without compiling."""
    rewrite: str | None = None
    """A change that removes it, as a unified diff."""
    rewrite_checked: bool = False
    """Whether the change was applied to a copy, removed the break and gave the same results for the arguments seen."""
    rewrite_note: str = ""
    """Why there is no checked rewrite, where that says nothing about the rewrite: no time, no copies of the arguments,
    the code of a library."""
    next_break: NextBreak | None = None
    """The first break that is left after the rewrite."""
    led_from: tuple[str, int, str] | None = None
    """The line of the program's own that leads to it, as (file, line, function), where it stands in a library."""
    in_graph_ops: int = field(default=0, repr=False)
    """How many operations the graph that ends here had when it was met first."""

    @staticmethod
    def of(event: Event) -> Finding:
        """The finding a `graph_break` event stands for."""
        names = ("code", "file", "line", "column", "function", "reason", "in_graph_ops")
        found = {name: event.fields[name] for name in names}
        found.update({name: event.fields.get(name) for name in ("end_line", "end_column")})
        found["line"] = found["line"] or 0
        led_to = callers(event)
        return Finding(
            **found,
            led_from=own_line(found["file"], led_to),
            provenance=event.fields.get("provenance") or "",
            hint=event.hint or "",
            callers=led_to,
            excerpt=Place(event.file, found["line"], found["column"], found["end_line"], found["end_column"]).excerpt(),
        )

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Finding:
        """The finding in a report."""
        data = dict(data)
        data["callers"] = [tuple(caller) for caller in data["callers"]]
        data["led_from"] = tuple(data["led_from"]) if data.get("led_from") else None
        if data["next_break"] is not None:
            data["next_break"] = NextBreak(**data["next_break"])
        return Finding(**data)

    @property
    def place(self) -> Place:
        """Where in the source the broken expression stands."""
        return Place(self.file, self.line, self.column, self.end_line, self.end_column)

    @property
    def key(self) -> Key:
        """Where the finding is, and why: events with the same key are one finding."""
        return self.file, self.line, self.column, self.end_column, self.reason

    @property
    def cost(self) -> str:
        """The measured cost in words."""
        runs = f"ran {_times(self.count)}"
        return f"{runs}, {duration(self.cost_us)} outside graphs" if self.cost_us else runs

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        lines = [f"{self.file}:{self.line}, in {self.function}{times}"]
        lines += [f"    {line}" for line in self.excerpt.splitlines()]
        lines.append(f"  {self.reason} [{self.code}]")
        if self.provenance:
            lines += [f"  {sentence}" for sentence in self.provenance.split("; ")]
        if self.cost_us:
            lines.append(f"  cost: {self.cost}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        lines += [f"  called from {file}:{line}, in {name}" for file, line, name in self.callers]
        if self.led_from is not None and self.led_from not in self.callers:
            lines.append("  led to by {}:{}, in {}".format(*self.led_from))
        if self.rewrite:
            checked = (
                "checked: it removes the break and gives the same result"
                if self.rewrite_checked
                else f"not checked: {self.rewrite_note}"
            )
            lines += [f"  rewrite ({checked}):", *(f"    {line}" for line in self.rewrite.splitlines())]
            if self.next_break is not None:
                after = self.next_break
                lines.append(
                    f"  the next break is then at line {after.line}, `{after.source}`: {after.reason} [{after.code}]"
                )
        return "\n".join(lines)


def own_line(file: str, callers: list[tuple[str, int, str]]) -> tuple[str, int, str] | None:
    """The line of the program that leads to a place in a library: among the calls that were captured, or among those
    that are running on this thread. None for a place in the program itself, and where no line leads to it."""
    if not is_library(file):
        return None
    for caller in callers:
        if not is_library(caller[0]):
            return caller
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if not is_library(code.co_filename) and module.split(".")[0] != "framejit":
            return code.co_filename, frame.f_lineno, code.co_qualname
        frame = frame.f_back
    return None


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def duration(us: float) -> str:
    """A time in words."""
    if us < 1000:
        return f"{us:.0f} µs"
    return f"{us / 1000:.1f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"
