"""When compiling a function has paid back: what it cost, beside what each call has won, by the times that were measured
of its graphs and of the same as ATen's operations; and what is not compiled, as that would not pay back yet."""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from framejit._native import Dispatcher, Entry, EntryCache
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, recall_all
from framejit.dispatchers import entry_caches
from framejit.events import FunctionRecord, Payback
from framejit.left_calls import waiting_of

_US = 1e6


def measure_payback(records: Iterable[FunctionRecord]) -> None:
    """Fill in when each function has paid back, or will have; None while a graph of it is not measured both ways."""
    by_place = {(record.file, record.line): record for record in records}
    for known in by_place.values():
        known.payback = None
    for owner in entry_caches():
        options, code = owner.options, owner.code
        record = by_place.get((options.file, options.line)) or by_place.get((code.co_filename, code.co_firstlineno))
        won = _won(owner) if record is not None and owner.entries else None
        if record is None or won is None:
            continue
        calls, cost = sum(map(_runs, owner.entries)), record.seconds + record.background_seconds
        each = won / calls
        record.payback = Payback(cost, calls, math.ceil(cost * _US / each) if each > 0 else None)


def measure_waiting(records: Iterable[FunctionRecord]) -> None:
    """Fill in how long functions ran in Python for calls that nothing compiled fits."""
    by_place = {(record.file, record.line): record for record in records}
    for known in by_place.values():
        known.waiting = None
    for owner in entry_caches():
        record = by_place.get((owner.code.co_filename, owner.code.co_firstlineno))
        if record is not None and owner.entries:
            record.waiting = waiting_of(owner)


def _won(owner: EntryCache) -> float | None:
    """The microseconds that all runs of an owner's graphs, and of what its entries go on to, took less than ATen's
    would have; None where one was not measured."""
    total, measured = 0.0, False
    for entry in _entries(owner):
        graphs = list(_graphs(entry))
        won = [_won_by_a_run(graph) for graph in graphs]
        if None in won:
            return None
        measured |= any(graph.times[0] is not None for graph in graphs)
        total += _runs(entry) * sum(filter(None, won)) / max(len(won), 1)
    return total if measured else None


def _won_by_a_run(graph: CompiledGraph) -> float | None:
    if graph.run is None:  # the graph runs as ATen itself
        return 0.0
    compiled, eager = graph.times
    if compiled is None or eager is None:
        return None
    return 0.0 if graph.state == "eager" else eager - compiled


def _runs(entry: Entry) -> int:
    return entry.hits + 1  # the call that made an entry ran it too, which no hit counts


def _entries(root: EntryCache) -> Iterator[Entry]:
    """The entries of an owner, and those of the resume functions that they go on to."""
    waiting, seen = [root], {id(root)}
    while waiting:
        for entry in waiting.pop().entries:
            yield entry
            for slot in entry.slots:
                if isinstance(slot.target, Dispatcher) and id(slot.target) not in seen:
                    seen.add(id(slot.target))
                    waiting.append(slot.target)


def _graphs(entry: Entry) -> Iterator[CompiledGraph]:
    """The graphs of an entry: one, or with symbolic sizes one for each variant."""
    for slot in entry.slots:
        if not isinstance(slot.target, Dispatcher):
            yield from recall_all(getattr(slot.target, "__wrapped__", slot.target))
