"""`write_html`: an explanation as one HTML file."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from framejit.report.element import Html, element, join, plural
from framejit.report.finding_card import finding_card
from framejit.report.graph_drawing import drawing
from framejit.report.guard_tree import tree
from framejit.report.kernels import kernels
from framejit.report.source import sources
from framejit.report.style import SCRIPT, STYLE
from framejit.report.timeline_picture import timeline
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.events import Event
    from framejit.findings.explanation import Explanation, Graph
    from framejit.findings.recompiles import Recompile

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def write_html(explanation: Explanation, path: str | os.PathLike[str]) -> None:
    """Write the explanation to a file that needs nothing else to be read."""
    text = page(explanation)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def page(explanation: Explanation) -> Html:
    """The report as one HTML document, with its styles and scripts in it."""
    sections = [
        ("findings", "Findings", _findings(explanation)),
        ("timeline", "Timeline", timeline(explanation.timeline)),
        ("source", "Source", sources(explanation.findings)),
        ("recompiles", "Recompiles", recompiles_part(explanation.recompiles)),
        ("graphs", "Graphs", _graphs(explanation.graphs)),
        ("guards", "Guards", _guards(explanation.events)),
        ("kernels", "Kernels", kernels(explanation.events)),
        ("functions", "Functions", functions_part(explanation)),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", "framejit report"),
        element("style", STYLE),
    )
    menu = element(
        "nav",
        element("ul", [element("li", element("a", title, href=f"#{name}")) for name, title, _ in sections]),
        aria_label="sections",
    )
    body = element(
        "body",
        element("a", "to the findings", href="#findings", class_="skip"),
        element("header", element("h1", "framejit report"), summary_part(explanation), menu),
        element(
            "main", [element("section", element("h2", title), content, id=name) for name, title, content in sections]
        ),
        element(
            "footer",
            element(
                "p", "Keys: j and k go to the next and previous finding, o opens and closes all parts.", class_="soft"
            ),
        ),
        element("script", SCRIPT),
    )
    return Html("<!doctype html>\n" + element("html", head, body, lang="en"))


def summary_part(explanation: Explanation) -> Html:
    """What there is, in numbers."""
    counts = {
        "graphs": len(explanation.graphs),
        "operations": sum(graph.n_ops for graph in explanation.graphs),
        "graph breaks": sum(finding.captures for finding in explanation.findings),
        "recompiles": sum(recompile.count for recompile in explanation.recompiles),
        "frames": len(explanation.frames),
    }
    facts = [element("li", element("b", value), f" {name}", data_fact=name) for name, value in counts.items()]
    error = explanation.error
    shown = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    versions = element("p", f"framejit {__version__}, torch {torch.__version__}", class_="soft")
    return join(
        [versions, element("ul", facts, class_="facts"), element("p", f"The call raised {shown}") if shown else None]
    )


def _findings(explanation: Explanation) -> Html:
    if not explanation.findings:
        return element("p", "Nothing kept the compiler from doing its best.", class_="soft")
    return element("div", [finding_card(i, finding) for i, finding in enumerate(explanation.findings, 1)])


def recompiles_part(recompiles: list[Recompile]) -> Html:
    """Which functions were compiled again, and why."""
    if not recompiles:
        return element("p", "No function was compiled again.", class_="soft")
    return element("div", [element("pre", str(recompile), class_="recompile", tabindex=0) for recompile in recompiles])


def _graphs(graphs: list[Graph]) -> Html:
    if not graphs:
        return element("p", "No graph was captured.", class_="soft")
    return element("div", [_graph(graph) for graph in graphs])


def _graph(graph: Graph) -> Html:
    title = f"graph {graph.graph_id} of {graph.function}: {plural(graph.n_ops, 'operation')}"
    picture = drawing(graph.code, title)
    shown = (
        element("div", picture, class_="scroll", tabindex=0)
        if picture is not None
        else element("p", "Too large to draw.", class_="soft")
    )
    text = element("details", element("summary", "as text"), element("pre", graph.code, tabindex=0))
    return element("details", element("summary", title), shown, text, id=f"graph-{graph.graph_id}", class_="graph")


def _guards(events: list[Event]) -> Html:
    functions = {event.frame_id: event.function for event in events if event.kind == "capture_started"}
    trees = []
    for event in events:
        if event.kind == "guards":
            count, _, _ = event.tree_text.partition("\n")
            title = element("summary", f"{functions.get(event.frame_id, 'a frame')}: {count}")
            trees.append(element("details", title, tree(event.tree_text), class_="guards"))
    return (
        element("div", trees)
        if trees
        else element("p", "No guards are known: a report that was read from a file has none.", class_="soft")
    )


def functions_part(explanation: Explanation) -> Html:
    """What became of each frame."""
    head = element(
        "thead",
        element(
            "tr", [element("th", title, scope="col") for title in ("function", "state", "compile time", "place", "why")]
        ),
    )
    rows = []
    for frame in explanation.frames:
        why = frame.reason + (f" [{frame.code}]" if frame.code else "")
        cells = (frame.function, frame.state, f"{frame.seconds * 1000:.1f} ms", f"{frame.file}:{frame.line}", why)
        rows.append(element("tr", [element("td", cell) for cell in cells]))
    return (
        element("table", head, element("tbody", rows), class_="wide")
        if rows
        else element("p", "No function was seen.", class_="soft")
    )
