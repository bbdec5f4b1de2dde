"""Tells about a difference: an event each time, and for each cause once a warning with a reproduction."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from framejit.events import emit, warn
from framejit.late_dataclass import dataclass

BACKEND, GUARD, CAPTURE = "FJ401", "FJ402", "FJ403"
"""Codes of differences: the backend computes a graph differently; an entry ran that did not fit; the capture itself is
wrong."""


@dataclass
class Finding:
    """A difference and what is known of its cause."""

    code: str
    difference: str
    cause: str
    node: str = ""
    guard: str = ""


class Reporter:
    """Reports about one function."""

    def __init__(self, function: str, file: str, line: int) -> None:
        self.function, self.file, self.line = function, file, line
        self._told: dict[tuple[str, str, str], str] = {}

    def same(self) -> None:
        self._emit("same")

    def skipped(self, reason: str) -> None:
        """The call could not be verified."""
        self._emit("skipped", reason=reason)
        warn(f"{self.function} can't be verified: {reason}", (self.file, self.line))

    def different(self, finding: Finding, write: Callable[[str], Path]) -> None:
        """`write` makes the reproduction, given its title."""
        key = (finding.code, finding.node, finding.guard)
        script = self._told.get(key)
        if script is None:
            title = f"{self.function} does not do what plain Python does: {finding.difference}; {finding.cause}"
            try:
                script = str(write(title))
                ending = f"reproduction: {script}"
            except Exception as e:  # a full disk must not take the program with it
                script = ""
                ending = f"no reproduction could be written: {type(e).__name__}: {e}"
            self._told[key] = script
            warn(f"{title}; {ending} [{finding.code}]", (self.file, self.line))
        self._emit(
            "different", finding.code, f"{finding.difference}; {finding.cause}", finding.node, finding.guard, script
        )

    def _emit(
        self, outcome: str, code: str = "", reason: str = "", node: str = "", guard: str = "", script: str = ""
    ) -> None:
        emit(
            "verify",
            function=self.function,
            file=self.file,
            line=self.line,
            outcome=outcome,
            code=code,
            reason=reason,
            node=node,
            guard=guard,
            script=script,
        )
