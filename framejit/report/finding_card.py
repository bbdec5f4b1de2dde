"""A finding on a page."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.report.element import Html, element

if TYPE_CHECKING:
    from framejit.findings.finding import Finding


def finding_card(number: int, finding: Finding, *, is_linked: bool = True) -> Html:
    """The finding with its number; on a page it is linked with the source there."""
    where = f"{finding.file}:{finding.line}"
    place = element("a", where, href=f"#source-{number}") if is_linked else element("code", where)
    parts = [
        element("h3", f"{number}. [{finding.code}] {finding.reason}"),
        element("p", place, f", in {finding.function}; {finding.cost}"),
        element("pre", finding.excerpt, tabindex=0) if finding.excerpt else None,
        [element("p", sentence) for sentence in finding.provenance.split("; ") if sentence],
        element("p", f"What helps: {finding.hint}") if finding.hint else None,
        [element("p", f"called from {file}:{line}, in {name}", class_="soft") for file, line, name in finding.callers],
    ]
    if finding.rewrite:
        checked = (
            "it removes the break and gives the same result"
            if finding.rewrite_checked
            else f"not checked: {finding.rewrite_note}"
        )
        parts += [element("p", f"Rewrite ({checked}):"), element("pre", _diff(finding.rewrite), tabindex=0)]
    elif finding.rewrite_note:
        parts.append(element("p", f"Without a rewrite: {finding.rewrite_note}", class_="soft"))
    if finding.next_break is not None:
        after = finding.next_break
        parts.append(
            element(
                "p", f"Then the next break is at line {after.line}, `{after.source}`: {after.reason} [{after.code}]"
            )
        )
    if not is_linked:
        return element("article", parts, class_="finding")
    return element("article", parts, id=f"finding-{number}", class_="finding", tabindex=-1)


def _diff(text: str) -> list[Html | str]:
    kinds = {"+": "add", "-": "del"}
    return [
        element("span", line, class_=kinds[line[0]]) if line[:1] in kinds else line
        for line in text.splitlines(keepends=True)
    ]
