"""What is told to a view while the script runs: functions, compiles in progress, breaks by cost, as plain data."""
from __future__ import annotations

import os
from time import monotonic
from typing import Any, Final

from framejit.coverage import measure_coverage
from framejit.events import Event, FunctionRecord, subscribe
from framejit.events.ledger import ledger
from framejit.events.meter import meter
from framejit.findings.found import Found

MOST_FUNCTIONS: Final = 60
"""Functions told of: those that most time was spent on."""

Place = tuple[str, str, int]  # function, file, first line


class Telling:
    """Listens from now on, and measures; `now` has what there is to tell."""

    def __init__(self) -> None:
        self._start = monotonic()
        self._found = Found()
        self._findings_told = 0
        # by thread: one that was refused ends under another frame's number
        self._captures: dict[int, tuple[Place, float, str]] = {}
        self._beside: dict[Place, float] = {}
        meter.start()
        self._unsubscribe = subscribe(self._hear)

    def stop(self) -> None:
        """Listen and measure no longer."""
        self._unsubscribe()
        meter.stop()

    def _hear(self, event: Event) -> None:
        if event.kind == "graph_break":
            self._found.hear(event)
        elif event.kind == "capture_started":
            place = event.function, event.file, event.line
            self._captures[event.thread] = place, monotonic(), "capturing"
        elif event.kind == "graph":
            known = self._captures.get(event.thread)
            if known is not None:
                self._captures[event.thread] = known[0], known[1], "compiling its graph"
        elif event.kind == "frame_done":
            self._captures.pop(event.thread, None)
        elif event.kind == "background":
            place = event.function, event.file, event.line
            if event.state == "started":
                self._beside[place] = monotonic()
            else:
                self._beside.pop(place, None)

    def now(self) -> dict[str, Any]:
        """What there is to tell at this moment. A finding's text is told once, its cost each time."""
        # copies: what is measured here is written into nobody else's records
        records = [FunctionRecord(**vars(record)) for record in ledger.records()]
        measure_coverage(records)
        self._found.take_costs()
        findings = list(self._found.by_key.values())
        new = findings[self._findings_told :]
        self._findings_told = len(findings)
        shown = sorted(filter(_is_shown, records), key=_time_spent, reverse=True)
        return {
            "elapsed": int(monotonic() - self._start),
            "seen": len(records),
            "graphs": sum(record.graphs for record in records),
            "graph_seconds": sum(record.graph_seconds or 0.0 for record in records),
            "break_seconds": sum(finding.cost_us for finding in findings) / 1e6,
            "compile_seconds": sum(record.seconds for record in records),
            "functions": [_row(record) for record in shown[:MOST_FUNCTIONS]],
            "compiles": self._compiles(),
            "findings": [vars(finding) for finding in new],
            "costs": [(finding.count, finding.captures, finding.cost_us) for finding in findings],
        }

    def _compiles(self) -> list[tuple[str, str, str, float]]:
        now = monotonic()
        under_way = [*self._captures.copy().values()]
        under_way += [(place, since, "compiling beside the script") for place, since in self._beside.copy().items()]
        return [
            (function, f"{os.path.basename(file)}:{line}", state, round(now - since, 1))
            for (function, file, line), since, state in under_way
        ]


def _is_shown(record: FunctionRecord) -> bool:
    """Functions of which nothing is to be compiled are only counted: every program has thousands."""
    return bool(record.graphs or record.breaks or record.state != "skipped")


def _time_spent(record: FunctionRecord) -> float:
    return (record.graph_seconds or 0.0) + (record.break_seconds or 0.0) + record.seconds


def _row(record: FunctionRecord) -> tuple[Any, ...]:
    where = f"{os.path.basename(record.file)}:{record.line}"
    numbers = record.graphs, len(record.breaks), record.hits
    return record.function, record.state, *numbers, record.graph_seconds, record.break_seconds, record.seconds, where
