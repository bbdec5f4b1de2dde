"""The guard that an entry should have had: what a new capture of the same call assumes, and the entry that ran does
not."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from framejit._native import Dispatcher, Entry
from framejit.backends.eager import eager
from framejit.guards.guard import GuardRecord
from framejit.options import Options
from framejit.verify.difference import first_difference
from framejit.verify.world import World


def entries_of(dispatcher: Dispatcher) -> list[Entry]:
    """The entries of a function and of what resumes it after its graph breaks."""
    found: dict[int, Entry] = {}
    todo = [dispatcher]
    while todo:
        for entry in todo.pop().entries:
            if id(entry) not in found:
                found[id(entry)] = entry
                todo += entry.tag.resume_points.dispatchers.values()
    return list(found.values())


class Hits:
    """Tells which entries ran between two moments."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._before = {id(entry): (entry, entry.hits) for entry in entries_of(dispatcher)}

    def reused(self) -> list[Entry]:
        """The entries that were there before and have served since."""
        return [entry for entry, hits in self._before.values() if entry.hits > hits]


def recaptured(dispatcher: Dispatcher, world: World, options: Options) -> tuple[Any, list[Entry]]:
    """The result of the call when it is captured anew, and the entries made for it. The backend is left out: only the
    capture is in question."""
    fresh = Dispatcher(
        world.fn, dispatcher.on_miss, replace(options, backend=eager, backend_name="eager", fullgraph=False, verify=0.0)
    )
    result = fresh(*world.args, **world.kwargs)
    return result, entries_of(fresh)


def capture_agrees(result: Any, world: World, expected: Any, expected_world: World) -> bool:
    """Whether the new capture does what plain Python did."""
    return first_difference({"result": expected, **expected_world.state()}, {"result": result, **world.state()}) is None


def missing_guards(ran: Iterable[Entry], made: Iterable[Entry]) -> list[str]:
    """In words: first assumptions about things the entry that ran has no guard on, then guards that held though they
    should have failed."""
    old = [record for entry in ran for record in entry.tag.records]
    new = [record for entry in made for record in entry.tag.records]
    places = {record.source_name for record in old}
    texts = {record.text for record in old}
    unknown = [r for r in new if r.source_name not in places]
    changed = [r for r in new if r.source_name in places and r.text not in texts and not _names_an_object(r)]
    return list(dict.fromkeys(_words(r) for r in (*unknown, *changed)))


def _names_an_object(record: GuardRecord) -> bool:
    """Copies are other objects than their originals: guards on identity say nothing here."""
    return " is <" in record.text or " at 0x" in record.text


def _words(record: GuardRecord) -> str:
    place = f" (assumed at {record.user_line[0]}:{record.user_line[1]})" if record.user_line else ""
    return f"{record.text}{place}"
