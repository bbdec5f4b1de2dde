"""The places at which graphs broke so far, gathered from events while the program runs."""
from __future__ import annotations

from framejit.events import Event
from framejit.events.meter import meter
from framejit.findings.finding import Finding, Key


class Found:
    """A finding for each place, with what was measured of it."""

    def __init__(self) -> None:
        self.by_key: dict[Key, Finding] = {}
        """In the order in which they were met first."""

    def hear(self, event: Event) -> Finding | None:
        """Take in a `graph_break`. Returns the finding if it is a new one."""
        finding = Finding.of(event)
        known = self.by_key.setdefault(finding.key, finding)
        if known is finding:
            return finding
        known.count += 1
        known.captures += 1
        return None

    def take_costs(self) -> None:
        """Take over what was measured."""
        for finding in list(self.by_key.values()):
            cost = meter.breaks.get((finding.file, finding.line, finding.column, finding.end_column))
            if cost is not None:
                finding.count, finding.cost_us = max(cost.count, 1), cost.ns / 1000

    def costliest_first(self) -> list[Finding]:
        """The findings in the order in which people want them."""
        return sorted(self.by_key.values(), key=lambda finding: -finding.cost_us)
