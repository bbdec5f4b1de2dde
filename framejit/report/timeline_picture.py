"""A picture of when frames were captured and their graphs compiled."""
from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.report.element import Html, element

if TYPE_CHECKING:
    from framejit.events.timeline import Span

WIDTH, ROW, LABEL = 1000, 22, 260


def timeline(found: list[Span]) -> Html:
    """A picture with a row for each function; the captures on it, and in them the compiles."""
    if not found:
        return element("p", "Nothing was captured.", class_="soft")
    rows = list(dict.fromkeys(span.function for span in found))
    first, last = min(span.start for span in found), max(span.end for span in found)
    scale = (WIDTH - LABEL - 10) / max(last - first, 1)
    height = ROW * len(rows) + 24
    parts: list[Html] = []
    for i in range(5):
        x = LABEL + i * (WIDTH - LABEL - 10) / 4
        parts.append(element("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=0, y2=height - 20, class_="grid"))
        anchor = {0: "start", 4: "end"}.get(i, "middle")
        parts.append(element("text", _time((last - first) * i / 4), x=f"{x:.1f}", y=height - 6, text_anchor=anchor))
    for i, name in enumerate(rows):
        shown = name if len(name) <= 34 else f"…{name[-33:]}"
        parts.append(element("text", element("title", name), shown, x=4, y=i * ROW + 15))
    for span in found:
        y = rows.index(span.function) * ROW + 4
        title = element(
            "title", f"{span.function}: {span.state}, {_time(span.end - span.start)}, at {_time(span.start - first)}"
        )
        bar = [
            element(
                "g", _bar(LABEL + (span.start - first) * scale, (span.end - span.start) * scale, y, "bar"), title,
                class_="capture",
            )
        ]
        bar += [
            _bar(LABEL + (start - first) * scale, (end - start) * scale, y + 4, "part", ROW - 16)
            for start, end in span.compiles
        ]
        parts += bar
    picture = element(
        "svg", parts, viewBox=f"0 0 {WIDTH} {height}", width=WIDTH, height=height, role="img",
        aria_label=f"timeline of {len(found)} captures",
    )
    note = element("p", (
        f"{len(found)} captures in {_time(last - first)}. Blue: capture of a frame; orange in it: its graph at the "
        "backend."
    ), class_="soft")
    return element(
        "div", note, element("div", picture, class_="scroll", tabindex=0), id="timeline-picture", data_count=len(found)
    )


def _bar(x: float, width: float, y: float, kind: str, height: int = ROW - 8) -> Html:
    return element("rect", x=f"{x:.2f}", y=y, width=f"{max(width, 1.5):.2f}", height=height, rx=2, class_=kind)


def _time(ns: float) -> str:
    if ns < 1e6:
        return f"{ns / 1e3:.0f} µs"
    return f"{ns / 1e6:.1f} ms" if ns < 1e9 else f"{ns / 1e9:.2f} s"
