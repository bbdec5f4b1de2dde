"""What an entry carries for Python: its guards in words, and the resume functions it may tail-call."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.capture.breaks.resume_points import ResumePoints
    from framejit.capture.weight_guards import WeightVersion
    from framejit.guards.guard import GuardRecord


@dataclass
class EntryTag:
    records: Sequence[GuardRecord]
    resume_points: ResumePoints
    state: str
    n_ops: int = field(default=0, kw_only=True)  # of its graph
    # the function has as many entries as it may: further misses run plainly
    full: bool = field(default=False, kw_only=True)
    # weights that something its graph holds was computed from
    frozen: tuple[WeightVersion, ...] = field(default=(), kw_only=True)
    # how often entries for the function were outdated before by new weights
    weight_changes: int = field(default=0, kw_only=True)
    changing: frozenset[str]  # sources of numbers it makes no assumption about
