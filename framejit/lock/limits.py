"""What a test marked `framejit` allows, and what it did."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from framejit.config import config
from framejit.dispatchers import drop_entries
from framejit.errors import InvalidOption
from framejit.events import subscribe
from framejit.events.ledger import Ledger
from framejit.lock.summary import Summary, summarize
from framejit.suggest import did_you_mean

_COUNTS: dict[str, Callable[[Summary], int]] = {
    "max_graphs": lambda seen: sum(f.graphs for f in seen.values()),
    "max_breaks": lambda seen: sum(len(f.breaks) for f in seen.values()),
    "max_recompiles": lambda seen: sum(f.recompiles for f in seen.values()),
}


def check_names(limits: dict[str, Any]) -> None:
    """Refuse limits that there are not."""
    for name, limit in limits.items():
        if name not in _COUNTS:
            raise InvalidOption(f"the mark framejit takes no {name!r}{did_you_mean(name, _COUNTS)}")
        if type(limit) is not int or limit < 0:
            raise InvalidOption(f"{name} must be a number from 0, not {limit!r}")


@contextmanager
def watching(root: str) -> Iterator[Summary]:
    """The functions that the block captures, filled in at its end. Compiled code from before is dropped, and what other
    processes have kept is not looked for, so that neither the order of tests nor earlier runs matter."""
    own, seen = Ledger(), Summary()
    drop_entries()
    unsubscribe = subscribe(own.note)
    try:
        with config.patch(keep_captures=False):
            yield seen
    finally:
        unsubscribe()
        seen.update(summarize(own.records(), root))


def exceeded(limits: dict[str, int], seen: Summary) -> list[str]:
    """A line for each limit that was exceeded, then what there was."""
    lines = []
    for name, limit in limits.items():
        count = _COUNTS[name](seen)
        if count > limit:
            lines.append(f"{count} {name.removeprefix('max_')}, at most {limit} allowed")
    if lines:
        for name, function in seen.items():
            lines.append(f"  {name}: {function.state}, graphs {function.graphs}, recompiles {function.recompiles}")
            lines += [f"    graph break {b}" for b in function.breaks]
    return lines
