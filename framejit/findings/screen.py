"""What a person sees of a report at the end of a script: one screen, with what costs most."""
from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from framejit.events.place import Place
from framejit.findings.finding import Finding, duration

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

LINES = 40
"""What fits on it."""
MOST_ITEMS = 3
MOST_LINES = 11
"""The lines of one item."""
MOST_NAMED = 4
"""Findings in libraries that are named under the line that leads to them."""


@dataclass
class _Item:
    """A finding in the program's own code, or all those in libraries that one line of the program leads to."""

    findings: list[Finding]

    @property
    def cost_us(self) -> float:
        return sum(finding.cost_us for finding in self.findings)

    def lines(self) -> list[str]:
        first = self.findings[0]
        if first.led_from is None:
            return str(first).splitlines()
        file, line, function = first.led_from
        breaks, cost = len(self.findings), f", {duration(self.cost_us)} outside graphs" if self.cost_us else ""
        lines = [f"{file}:{line}, in {function}", f"    {Place(file, line).source()}"]
        lines.append(f"  leads to graph breaks at {breaks} place{'' if breaks == 1 else 's'} in libraries{cost}")
        for finding in islice(self.findings, MOST_NAMED):
            lines.append(f"    {finding.file}:{finding.line}, in {finding.function}")
            lines.append(f"      {finding.reason} [{finding.code}], {finding.cost}")
        return lines


def screen(explanation: Explanation) -> str:
    """The report, if it fits; else its first line and what costs most."""
    text = str(explanation)
    if len(text.splitlines()) <= LINES:
        return text
    items = _items(explanation)
    lines = text.splitlines()[:1]
    for item in items[:MOST_ITEMS]:
        told = item.lines()
        lines += ["", *(told if len(told) <= MOST_LINES else [*told[: MOST_LINES - 1], "  ..."])]
    left = len(items) - MOST_ITEMS
    more = [f"{left} more finding{'' if left == 1 else 's'}"] if left > 0 else []
    lines += ["", ", ".join([*more, "graphs, recompiles and what was left out: `--full`, or `--html FILE`"])]
    return "\n".join(lines)


def _items(explanation: Explanation) -> list[_Item]:
    by_line: dict[object, _Item] = {}
    for finding in explanation.findings:
        by_line.setdefault(finding.led_from or finding.key, _Item([])).findings.append(finding)
    return sorted(by_line.values(), key=lambda item: -item.cost_us)
