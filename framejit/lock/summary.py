"""The functions a run saw, as a lock keeps them: no paths of the machine, no line numbers, the same order each time."""
from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from framejit.events import Break, FunctionRecord

_PLACE = re.compile(r"(\S+\.py):\d+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")


@dataclass(order=True)
class BreakSummary:
    """A graph break: its code, the line of source it stands in, and why."""

    at: str
    code: str
    reason: str

    def __str__(self) -> str:
        return f"[{self.code}] at `{self.at}`: {self.reason}"


@dataclass
class FunctionSummary:
    """The outcome for one function, without what belongs to one machine or run. Functions of one name in one file, as
    lambdas are, count together."""

    state: str
    graphs: int = 0
    recompiles: int = 0
    breaks: list[BreakSummary] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> FunctionSummary:
        """The summary that `to_dict` made this of. Raises KeyError or TypeError for other data."""
        return FunctionSummary(
            data["state"], data["graphs"], data["recompiles"], [BreakSummary(**b) for b in data["breaks"]]
        )


Summary = dict[str, FunctionSummary]
"""Functions by `file::name`."""


def summarize(records: Iterable[FunctionRecord], root: str) -> Summary:
    """The functions that were seen. Of those outside `root`, the libraries', only what has graphs or breaks is of
    interest."""
    found: Summary = {}
    for record in records:
        if not (record.graphs or record.breaks or _within(record.file, root)):
            continue
        name = f"{portable(record.file, root)}::{record.function}"
        known = found.setdefault(name, FunctionSummary(record.state))
        known.state = max(known.state, record.state)
        known.graphs += record.graphs
        known.recompiles += record.recompiles
        known.breaks += [_break(b, root) for b in record.breaks.values()]
    for function in found.values():
        function.breaks = sorted({(b.at, b.code, b.reason): b for b in function.breaks}.values())
    return dict(sorted(found.items()))


def _break(found: Break, root: str) -> BreakSummary:
    reason = _PLACE.sub(lambda match: portable(match[1], root), found.reason)
    return BreakSummary(linecache.getline(found.file, found.line).strip(), found.code, _ADDRESS.sub("0x…", reason))


def _within(path: str, folder: str) -> bool:
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), "")) and "site-packages" not in path


def portable(path: str, root: str) -> str:
    """A file's path from the project's folder, or, for a library's, from the folder it is imported from."""
    path = os.path.abspath(path) if os.path.exists(path) else path
    for folder in (root, *sorted(filter(None, sys.path), key=len, reverse=True)):
        if folder == root and not _within(path, root):
            continue
        start = os.path.join(os.path.abspath(folder), "")
        if path.startswith(start):
            return path.removeprefix(start).replace(os.sep, "/")
    return os.path.basename(path)
