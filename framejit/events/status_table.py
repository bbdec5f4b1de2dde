"""`framejit.status()` as text."""
from __future__ import annotations

import os
from collections.abc import Sequence

from framejit.events.ledger import FunctionRecord

HEADINGS = ("function", "state", "graphs", "ops", "breaks", "recompiles", "entries", "hits", "compile s", "where")


def table(records: Sequence[FunctionRecord]) -> str:
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
    return (record.function, record.state, *map(str, numbers), f"{record.seconds:.3f}", where)
