"""The source around findings, with what was found in the margin."""
from __future__ import annotations

import linecache
from collections.abc import Iterable
from typing import TYPE_CHECKING

from framejit.report.element import Html, element

if TYPE_CHECKING:
    from framejit.findings.finding import Finding

AROUND = 6
"""Lines shown before and after a finding."""


def sources(findings: list[Finding]) -> Html:
    """Each file that has findings, in parts."""
    if not findings:
        return element("p", "No graph breaks.", class_="soft")
    files = dict.fromkeys(finding.file for finding in findings)
    return element(
        "div", [_file(file, [(i, f) for i, f in enumerate(findings, 1) if f.file == file]) for file in files]
    )


def _file(file: str, findings: list[tuple[int, Finding]]) -> Html:
    by_line: dict[int, list[tuple[int, Finding]]] = {}
    for number, finding in findings:
        by_line.setdefault(finding.line, []).append((number, finding))
    lines = linecache.getlines(file)
    rows: list[Html] = []
    before = 0
    for line in _shown(by_line, len(lines)):
        if line != before + 1 and rows:
            rows.append(element("div", "⋮", class_="gap"))
        before = line
        rows.append(_row(line, lines[line - 1].rstrip("\n"), by_line.get(line, [])))
    if not rows:  # the file is not there any more: what the finding itself remembers
        rows = [_row(line, found[0][1].excerpt.split("\n")[0], found) for line, found in sorted(by_line.items())]
    return element("section", element("h3", file), element("div", rows, class_="scroll", tabindex=0))


def _shown(lines: Iterable[int], last: int) -> list[int]:
    shown: set[int] = set()
    for line in lines:
        shown.update(range(max(1, line - AROUND), min(last, line + AROUND) + 1))
    return sorted(shown)


def _row(line: int, text: str, found: list[tuple[int, Finding]]) -> Html:
    notes = [
        element(
            "div",
            element("a", f"[{f.code}] {f.reason}", href=f"#finding-{number}", id=f"source-{number}"),
            element("div", f.cost, class_="soft"),
        )
        for number, f in found
    ]
    code = element("div", element("span", line, class_="no"), _marked(text, found), class_="code")
    return element("div", code, element("aside", notes) if notes else None, class_="row hit" if found else "row")


def _marked(text: str, found: list[tuple[int, Finding]]) -> Html | str:
    """The line with the first finding's expression marked."""
    if not found:
        return text
    finding = found[0][1]
    if finding.column is None or finding.end_column is None:
        return element("mark", text)
    encoded = text.encode()
    end = finding.end_column if finding.end_line in (None, finding.line) else len(encoded)
    parts = [
        part.decode(errors="replace")
        for part in (encoded[: finding.column], encoded[finding.column : end], encoded[end:])
    ]
    return element("span", parts[0], element("mark", parts[1]), parts[2])
