"""What a person sees of a report at the end of a script: one screen, with what costs most."""
from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from framejit.events.place import Place
from framejit.findings.finding import Finding, duration
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

LINES = 40
"""What fits on it."""
MOST_ITEMS = 3
FOR_OTHERS = 8
"""Lines for what is no finding."""
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
    """The report, if it fits; else its first line, what costs most, and the function that was compiled most often."""
    text = str(explanation)
    if len(text.splitlines()) <= LINES:
        return text
    items = _items(explanation)
    lines = text.splitlines()[:1]
    shown = items[:MOST_ITEMS]
    for item in shown:
        lines += ["", *_cut(item.lines(), (LINES - FOR_OTHERS) // len(shown) - 1)]
    left = len(items) - MOST_ITEMS
    last = [f"{left} more finding{'' if left == 1 else 's'}"] if left > 0 else []
    last.append("graphs, recompiles and what was left out: `--full`, or `--html FILE`")
    for recompile in explanation.recompiles[:1]:
        room = LINES - len(lines) - 3  # empty lines, and the last
        lines += ["", *_cut(str(recompile).splitlines(), room)] if room > 1 else []
    return "\n".join([*lines, "", ", ".join(last)])


def _cut(lines: list[str], most: int) -> list[str]:
    return lines if len(lines) <= most else [*lines[: most - 1], "  ..."]


def _items(explanation: Explanation) -> list[_Item]:
    by_line: dict[object, _Item] = {}
    for finding in explanation.findings:
        by_line.setdefault(finding.led_from or finding.key, _Item([])).findings.append(finding)
    return sorted(by_line.values(), key=lambda item: -item.cost_us)
