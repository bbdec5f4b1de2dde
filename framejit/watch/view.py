"""The picture that a view shows, of rich's widgets. Whatever the script says is text in it, never markup."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from rich.bar import Bar
from rich.console import ConsoleDimensions, Group, RenderableType
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from framejit.findings.finding import Finding, duration
from framejit.watch.keys import CLOSE, DOWN, HELP, OPEN, UP

_COLOURS: Final = {"compiled": "green", "compiled in parts": "yellow", "eager": "red", "being captured": "cyan"}
_MOST_COMPILES: Final = 3
_FRAME: Final = 2
"""Lines of a panel's frame; a table has one more, for its headings."""
_BAR: Final = 10
_CONTROL: Final = re.compile(r"[^\n -~\xa0-\U0010ffff]")
_CONTROL_BUT_COLOURS: Final = re.compile(r"(?!\x1b\[[0-9;]*m)[^ -~\xa0-\U0010ffff]")
_LAST_ROWS: Final = 8


class View:
    """What was told last, and which break the person has chosen."""

    def __init__(self, title: str, has_keyboard: bool) -> None:
        self._title, self._has_keyboard = title, has_keyboard
        self._told: dict[str, Any] = {}
        self._findings: list[Finding] = []
        self._chosen: Finding | None = None
        self._is_open = False

    # ---- what changes -----------------------------------------------------------------------------------

    def take(self, told: dict[str, Any]) -> None:
        """Take in what the script's process tells."""
        self._findings += map(Finding.from_dict, told["findings"])
        for finding, (count, captures, cost_us) in zip(self._findings, told["costs"]):
            finding.count, finding.captures, finding.cost_us = count, captures, cost_us
        self._told = told

    def press(self, key: str) -> None:
        """Choose another break, open its finding or close it."""
        breaks = self._breaks()
        if not breaks:
            return
        at = self._at(breaks)
        if key in (UP, DOWN):
            self._chosen = breaks[min(max(at + (1 if key == DOWN else -1), 0), len(breaks) - 1)]
        elif key == OPEN:
            self._chosen, self._is_open = breaks[at], not self._is_open
        elif key == CLOSE:
            self._is_open = False

    def _breaks(self) -> list[Finding]:
        return sorted(self._findings, key=lambda finding: (-finding.cost_us, -finding.count))

    def _at(self, breaks: list[Finding]) -> int:
        return breaks.index(self._chosen) if self._chosen in breaks else 0

    # ---- pictures ---------------------------------------------------------------------------------------

    def picture(self, size: ConsoleDimensions, last_lines: Callable[[int], list[str]]) -> Layout:
        """All of a terminal of this size; `last_lines` gives so many of the script's output."""
        compiles = self._told.get("compiles", [])[:_MOST_COMPILES]
        of_output = max(4, size.height // 4)
        of_compiles = max(len(compiles), 1) + _FRAME
        left = size.height - 3 - 1 - of_output - of_compiles
        layout = Layout()
        middle = [self._opened()] if self._is_open and self._findings else [
            Layout(self._functions(left * 3 // 5 - _FRAME - 1), name="functions", ratio=3),
            Layout(self._by_cost(left * 2 // 5 - _FRAME - 1), name="breaks", ratio=2),
        ]
        layout.split_column(
            Layout(Panel(self._summary(), title=_text(f"framejit run --watch {self._title}")), size=3),
            *middle,
            Layout(_panel("compiles in progress", self._compiles(compiles)), size=of_compiles),
            Layout(_panel("output", _output(last_lines(of_output - _FRAME))), size=of_output),
            Layout(_text(HELP if self._has_keyboard else "Ctrl-C is the script's", style="dim"), size=1),
        )
        return layout

    def last_picture(self) -> RenderableType | None:
        """What is left on the terminal when the script has ended; None where it compiled nothing."""
        if not self._told.get("graphs"):
            return None
        parts: list[RenderableType] = [
            Panel(self._summary(), title=_text(f"framejit run --watch {self._title}")), self._functions(_LAST_ROWS)
        ]
        return Group(*parts, *([self._by_cost(_LAST_ROWS, chosen=False)] if self._findings else []))

    def _summary(self) -> Text:
        told = self._told
        if not told:
            return _text("the script begins")
        elapsed = max(told["elapsed"], 1)
        shares = [
            f"{min(told[name] / elapsed, 1):.0%} {words}"
            for name, words in (
                ("graph_seconds", "in graphs"), ("break_seconds", "at breaks"), ("compile_seconds", "compiling")
            )
        ]
        return _text(
            f"{told['elapsed']} s: {', '.join(shares)}   functions seen: {told['seen']}   graphs: {told['graphs']}   "
            f"places of graph breaks: {len(self._findings)}",
            no_wrap=True, overflow="ellipsis",
        )

    def _functions(self, rows: int) -> Panel:
        table = _table("function", "state", "graphs", "breaks", "hits", "time in graphs", "", "compile s", "where")
        for function, state, graphs, breaks, hits, in_graphs, at_breaks, compiling, where in (
            self._told.get("functions", [])[: max(rows, 1)]
        ):
            total = (in_graphs or 0.0) + (at_breaks or 0.0)
            share = (in_graphs or 0.0) / total if total else None
            table.add_row(
                _text(function), _text(state, style=_COLOURS.get(state, "")),
                *(_text(str(number), justify="right") for number in (graphs, breaks, hits)),
                _text("-" if share is None else f"{share:.0%} of {duration(total * 1e6)}", justify="right"),
                "" if share is None else Bar(1, 0, share, width=_BAR, color="green"),
                _text(f"{compiling:.2f}", justify="right"), _text(where),
            )
        return _panel("functions", table)

    def _by_cost(self, rows: int, chosen: bool = True) -> Panel:
        if not self._findings:
            return _panel("graph breaks by cost", _text("none so far", style="dim"))
        breaks, rows = self._breaks(), max(rows, 1)
        at = self._at(breaks)
        first = max(0, min(at - rows // 2, len(breaks) - rows)) if chosen else 0
        table = _table("cost", "runs", "code", "where")
        table.add_column("why", no_wrap=True, overflow="ellipsis", ratio=1)  # takes what the others leave
        for number, finding in enumerate(breaks[first : first + rows], first):
            where = f"{finding.function}, {finding.file.rpartition('/')[2]}:{finding.line}"
            table.add_row(
                _text(duration(finding.cost_us) if finding.cost_us else "-", justify="right"),
                _text(str(finding.count), justify="right"), _text(finding.code), _text(where), _text(finding.reason),
                style="reverse" if chosen and self._has_keyboard and number == at else "",
            )
        return _panel("graph breaks by cost", table)

    def _opened(self) -> Layout:
        breaks = self._breaks()
        at = self._at(breaks)
        text = _text(str(breaks[at]), overflow="fold")
        return Layout(Panel(text, title=_text(f"finding {at + 1} of {len(breaks)}")), name="finding")

    def _compiles(self, compiles: list[tuple[str, str, str, float]]) -> RenderableType:
        if not compiles:
            return _text("none", style="dim")
        more = len(self._told["compiles"]) - len(compiles)
        lines = [_text(f"{name} ({where}): {state}, {seconds:.1f} s") for name, where, state, seconds in compiles]
        if more:
            lines[-1].append(f", and {more} more")
        return Group(*lines)


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=_text(title), title_align="left")


def _table(*headings: str) -> Table:
    table = Table(box=None, expand=True, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    return table


def _output(lines: list[str]) -> Text:
    # colours stay
    text = Text("\n").join(Text.from_ansi(_CONTROL_BUT_COLOURS.sub("", line)) for line in lines)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _text(text: object, style: str = "", **how: Any) -> Text:
    """A text of the script's, without what would move the cursor."""
    return Text(_CONTROL.sub("", str(text)), style, **how)
