"""How much of each function runs in graphs: counted from what its entries have served so far."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from framejit._native import EntryCache
from framejit.dispatchers import entry_caches
from framejit.events import FunctionRecord
from framejit.events.meter import meter

if TYPE_CHECKING:
    from framejit.capture.breaks.resume_points import ResumePoints


def measure_coverage(records: Iterable[FunctionRecord]) -> None:
    """Fill in what the records can't know from events: entries and hits as they are now, operations run, and times if
    they are measured."""
    by_place: dict[tuple[str, int], FunctionRecord] = {}
    for record in records:
        by_place[record.file, record.line] = record
        record.entries = record.hits = record.graph_ops_run = record.broken_ops_run = 0
        _add_times(record)
    for owner in entry_caches():
        options, code = owner.options, owner.code
        known = by_place.get((options.file, options.line)) or by_place.get((code.co_filename, code.co_firstlineno))
        if known is not None:
            known.entries += len(owner.entries)
            known.hits += owner.hits
            _add_operations(known, owner)


def _add_operations(record: FunctionRecord, owner: EntryCache) -> None:
    points = _distinct(entry.tag.resume_points for entry in owner.entries)
    owners: list[EntryCache] = [owner, *(d for p in points for d in p.dispatchers.values())]
    # The call that made an entry ran it too, which no hit counts.
    record.graph_ops_run += sum(entry.tag.n_ops * (entry.hits + 1) for o in owners for entry in o.entries)
    record.broken_ops_run += sum(step.hits for p in points for step in p.tensor_steps)


def _distinct(points: Iterable[ResumePoints]) -> list[ResumePoints]:
    return list({id(p): p for p in points}.values())


def _add_times(record: FunctionRecord) -> None:
    graphs = meter.graphs.get((record.function, record.file, record.line))
    places = {(b.file, b.line, b.column) for b in record.breaks.values()}
    breaks = [cost for spot, cost in meter.breaks.items() if spot[:3] in places]
    record.graph_seconds = None if graphs is None else graphs.ns / 1e9
    record.break_seconds = sum(cost.ns for cost in breaks) / 1e9 if breaks else None
