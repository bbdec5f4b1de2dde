"""An explanation or a status in a cell of a notebook: HTML that needs nothing else and takes the notebook's colours, so
that it is read in light ones and dark ones."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from framejit.report.element import Html, element, plural
from framejit.report.finding_card import finding_card
from framejit.report.graph_drawing import beginning
from framejit.report.html import functions_part, recompiles_part, summary_part

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

MOST_NODES = 60
"""Nodes of a graph that are drawn."""
MOST_GRAPHS = 20
"""Graphs that are drawn."""

STYLE = Html("""
.framejit { font-size: 14px; line-height: 1.5; }
.framejit h4 { margin: .8em 0 .3em; }
.framejit p { margin: .3em 0; }
.framejit .soft { opacity: .75; }
.framejit .facts { display: flex; flex-wrap: wrap; gap: .3em 1.2em; list-style: none; padding: 0; margin: .4em 0; }
.framejit pre { background: none; color: inherit; margin: .4em 0; overflow-x: auto; white-space: pre; }
.framejit .scroll { overflow-x: auto; }
.framejit summary { cursor: pointer; }
.framejit table { border-collapse: collapse; background: none; color: inherit; }
.framejit th, .framejit td { text-align: left; padding: .2em .7em; background: none; color: inherit;
  border-bottom: 1px solid rgba(128, 128, 128, .4); }
.framejit .finding { border-left: 4px solid #d9822b; padding: .2em .8em; margin: .5em 0; }
.framejit .add { color: #2e8b4e; }
.framejit .del { color: #d0524a; }
.framejit svg text { fill: currentColor; font: 12px monospace; }
.framejit svg rect { fill: rgba(111, 159, 216, .25); stroke: rgba(128, 128, 128, .7); }
.framejit svg rect.input { fill: rgba(128, 128, 128, .15); }
.framejit svg path { fill: none; stroke: rgba(128, 128, 128, .9); }
""")


def explanation_cell(explanation: Explanation) -> Html:
    """An explanation: what there is in numbers, findings, graphs drawn, recompiles, and what became of each frame."""
    findings = [finding_card(i, finding, is_linked=False) for i, finding in enumerate(explanation.findings, 1)]
    graphs = [(f"graph {graph.graph_id} of {graph.function}", graph.n_ops, graph.code) for graph in explanation.graphs]
    recompiles = explanation.recompiles
    frames = element("div", functions_part(explanation), class_="scroll")
    return _cell(
        summary_part(explanation),
        [element("h4", "Findings"), findings] if findings else None,
        _graphs(graphs),
        [element("h4", "Recompiles"), recompiles_part(recompiles)] if recompiles else None,
        element("details", element("summary", "Functions"), frames),
    )


def status_cell(
    headings: Sequence[str], rows: Iterable[Sequence[str]], below: Iterable[tuple[str, Sequence[str]]],
    graphs: Sequence[tuple[str, int, str]],
) -> Html:
    """A status: the table, what stands below it, and graphs drawn, each a name, its operations and its text."""
    head = element("thead", element("tr", [element("th", heading, scope="col") for heading in headings]))
    body = element("tbody", [element("tr", [element("td", cell) for cell in row]) for row in rows])
    return _cell(
        element("div", element("table", head, body), class_="scroll"),
        [
            [element("p", heading), element("ul", [element("li", line) for line in lines])] for heading, lines in below
        ],
        _graphs(graphs),
    )


def _cell(*children: object) -> Html:
    return element("div", element("style", STYLE), children, class_="framejit")


def _graphs(graphs: Sequence[tuple[str, int, str]]) -> Html | None:
    if not graphs:
        return None
    left_out = len(graphs) - MOST_GRAPHS
    drawn = [_graph(*graph) for graph in graphs[:MOST_GRAPHS]]
    note = element("p", f"and {left_out} more", class_="soft") if left_out > 0 else None
    return element("div", element("h4", "Graphs"), drawn, note)


def _graph(name: str, n_ops: int, text: str) -> Html:
    title = f"{name}: {plural(n_ops, 'operation')}"
    picture = beginning(text, title, MOST_NODES)
    return element(
        "details", element("summary", title), element("div", picture, class_="scroll"),
        element("details", element("summary", "as text"), element("pre", text)), class_="graph",
    )
