"""`framejit.status()` as text."""
from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from framejit.events.ledger import FunctionRecord, Launched, Reverted, Unfused
    from framejit.events.training import Training

HEADINGS = (
    "function", "state", "graphs", "ops", "breaks", "recompiles", "entries", "hits", "in graphs", "compile s",
    "graphs s", "breaks s", "where",
)


def table(
    records: Sequence[FunctionRecord], reverted: Sequence[Reverted] = (), unfused: Sequence[Unfused] = (),
    trained: Sequence[Training] = (), launched: Sequence[Launched] = ()
) -> str:
    """The text of `framejit.status()`: a row for each function, and below it the graphs that are not used, not fused,
    trained or launched at once, and when functions have paid back."""
    parts = [_functions(records)]
    for heading, graphs in (((
        "not used, because ATen measured quicker:"
    ), reverted), ("not fused, and run as ATen operations:", unfused)):
        parts += [heading, *(f"  {graph}" for graph in graphs)] if graphs else []
    parts += ["compiled with their backward:", *(f"  {graph.summary}" for graph in trained)] if trained else []
    plain = [graph for graph in launched if graph.state == "plain"]
    paid = [f"  {record.function}: {record.payback}" for record in records if record.payback is not None]
    parts += ["what compiling cost, and what calls win:", *paid] if paid else []
    parts += ["launched kernel by kernel, not at once:", *(f"  {graph}" for graph in plain)] if plain else []
    return "\n".join(parts)


def _functions(records: Sequence[FunctionRecord]) -> str:
    if not records:
        return "framejit has seen no function yet"
    rows = [HEADINGS, *map(_row, records)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADINGS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    reasons = [f"  {record.function}: {record.reason}" for record in records if record.reason]
    return "\n".join([*lines, *(["why:", *reasons] if reasons else [])])


def _row(record: FunctionRecord) -> tuple[str, ...]:
    numbers = (record.graphs, record.ops, len(record.breaks), record.recompiles, record.entries, record.hits)
    where = f"{os.path.basename(record.file)}:{record.line}"
    share = "-" if record.share_in_graphs is None else f"{record.share_in_graphs:.0%}"
    seconds = (_seconds(record.seconds), _seconds(record.graph_seconds), _seconds(record.break_seconds))
    return (record.function, record.state, *map(str, numbers), share, *seconds, where)


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.3f}"
