"""What backends told about the kernels they made."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from framejit.report.element import Html, element

if TYPE_CHECKING:
    from framejit.events import Event


def kernels(events: Iterable[Event]) -> Html:
    """Each kernel with its source, how operations were fused, and how quick the graphs are."""
    told = list(events)
    graphs = _graphs(told)
    sources = [event for event in told if event.kind == "output_code"]
    fusions = [event for event in told if event.kind == "fusion"]
    last = list({event.graph: event for event in told if event.kind == "perf"}.values())  # the last word about each
    if not (sources or fusions or last):
        return element("p", "The backend made no kernels of its own.", class_="soft")
    parts: list[Html] = []
    if last:
        head = element(
            "thead",
            element(
                "tr",
                [
                    element("th", title, scope="col")
                    for title in ("graph", "compiled", "eager", "speedup", "bandwidth", "state")
                ],
            ),
        )
        rows = [element("tr", [element("td", cell) for cell in _times(event, graphs)]) for event in last]
        parts.append(element("table", head, element("tbody", rows), class_="wide"))
    parts += [
        element(
            "details",
            element("summary", "fusion of ", _graph_link(event, graphs)),
            element("pre", event.text, tabindex=0),
        )
        for event in fusions
    ]
    for event in sources:
        facts = [element("p", text, class_="soft") for text in _facts(event.fields.get("kernel"))]
        title = element("summary", element("code", event.name), f", {event.language}, for ", _graph_link(event, graphs))
        parts.append(element("details", title, facts, element("pre", event.source, tabindex=0), class_="kernel"))
    return element("div", parts, data_count=len(sources))


def _times(event: Event, graphs: dict[Any, int]) -> list[Html | str]:
    compiled, eager, moved = event.compiled_us, event.eager_us, event.fields.get("bytes")
    least = "≥ " if event.fields.get("eager_is_least") else ""
    speedup = f"{least}{eager / compiled:.2f}×" if compiled and eager else "–"
    bandwidth = f"{moved / compiled / 1e3:.1f} GB/s" if moved and compiled else "–"
    name = _graph_link(event, graphs) if event.fields.get("graph_id") in graphs else str(event.graph)
    return [name, _us(compiled), f"{least}{_us(eager)}", speedup, bandwidth, str(event.state)]


def _us(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} µs"


def _graphs(events: list[Event]) -> dict[Any, int]:
    """The captured graph that each graph of a backend was made from: it has its number or, where a backend gives graphs
    names of its own, is the last one that was captured on the thread before the backend spoke of it.
    """
    found: dict[Any, int] = {}
    last: dict[int, int] = {}
    for event in events:
        if event.kind == "graph":
            last[event.thread] = found[event.graph_id] = event.graph_id
        elif event.kind in ("fusion", "output_code") and isinstance(event.graph_id, str) and event.thread in last:
            found.setdefault(event.graph_id, last[event.thread])
    return found


def _graph_link(event: Event, graphs: dict[Any, int]) -> Html | str:
    if event.graph_id is None:
        return "a graph that framejit did not capture"
    if event.graph_id not in graphs:
        return f"graph {event.graph_id}"
    return element("a", f"graph {event.graph_id}", href=f"#graph-{graphs[event.graph_id]}")


def _facts(kernel: Any) -> list[str]:
    """Bytes and the like, where the backend tells."""
    if isinstance(kernel, dict) and kernel:
        return [", ".join(f"{name} {value}" for name, value in kernel.items())]
    return [kernel] if isinstance(kernel, str) else []
