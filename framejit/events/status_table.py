"""`framejit.status()` as text."""
from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framejit.events.ledger import FunctionRecord, Status

HEADINGS = (
    "function", "state", "graphs", "ops", "breaks", "recompiles", "entries", "hits", "in graphs", "compile s",
    "graphs s", "breaks s", "where",
)
NOTHING = "framejit has seen no function yet"
MOST_NAMES = 12
"""Functions that are named behind one reason."""


def table(status: Status) -> str:
    """The text of `framejit.status()`: a row for each function, and below it the graphs that are not used, not fused,
    trained or launched at once, and when functions have paid back."""
    if not status.functions:
        parts = [NOTHING]
    else:
        rows = [HEADINGS, *map(row, shown(status))]
        widths = [max(len(cells[i]) for cells in rows) for i in range(len(HEADINGS))]
        parts = ["  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip() for cells in rows]
        parts.insert(1, "  ".join("-" * width for width in widths))
    for heading, lines in below(status):
        parts += [heading, *(f"  {line}" for line in lines)]
    return "\n".join(parts)


def shown(status: Status) -> list[FunctionRecord]:
    """The functions that have a row: all but those that are left to Python, which are named below."""
    return [record for record in status.functions if record.state != "skipped" or not record.reason]


def below(status: Status) -> list[tuple[str, list[str]]]:
    """What stands below the rows: lines under headings."""
    records = status.functions
    told = [
        ("why:", _reasons(records)),
        ("not used, because ATen measured quicker:", list(map(str, status.reverted))),
        ("not fused, and run as ATen operations:", list(map(str, status.unfused))),
        ("compiled with their backward:", [graph.summary for graph in status.trained]),
        (
            "what compiling cost, and what calls win:",
            [f"{record.function}: {record.payback}" for record in records if record.payback is not None],
        ),
        (
            "run in Python for calls that nothing compiled fits:",
            [f"{record.function}: {record.waiting}" for record in records if record.waiting is not None],
        ),
        (
            "launched kernel by kernel, not at once:",
            [str(graph) for graph in status.launched if graph.state == "plain"],
        ),
    ]
    return [(heading, lines) for heading, lines in told if lines]


def _reasons(records: Iterable[FunctionRecord]) -> list[str]:
    """Each reason with the functions that have it."""
    names: dict[str, dict[str, None]] = {}
    for record in records:
        if record.reason:
            names.setdefault(record.reason, {})[record.function] = None
    return [f"{_listed([*functions])}: {reason}" for reason, functions in names.items()]


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def row(record: FunctionRecord) -> tuple[str, ...]:
    """The cells of a function, below `HEADINGS`."""
    numbers = (record.graphs, record.ops, len(record.breaks), record.recompiles, record.entries, record.hits)
    where = f"{os.path.basename(record.file)}:{record.line}"
    share = "-" if record.share_in_graphs is None else f"{record.share_in_graphs:.0%}"
    seconds = (_seconds(record.seconds), _seconds(record.graph_seconds), _seconds(record.break_seconds))
    return (record.function, record.state, *map(str, numbers), share, *seconds, where)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
