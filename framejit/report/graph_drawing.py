"""A captured graph as a picture: operations in layers from the inputs down to the results."""
from __future__ import annotations

import re

from framejit.late_dataclass import dataclass
from framejit.report.element import Html, element, join, plural

LIMIT = 250
"""Graphs with more nodes than this are shown as text only."""
BOX, GAP_X, GAP_Y, CHARACTER, BEND = 26, 18, 28, 7.4, 90

_NODE = re.compile(r"^\s*%(\w+) : .*?= (\w+)\[target=(.*?)\](?:\((.*)\))?\s*$")
_RETURN = re.compile(r"^\s*return (.*)$")
_NAME = re.compile(r"%?\b([A-Za-z_]\w*)")


@dataclass
class Node:
    """A node as it is drawn."""

    name: str
    label: str
    is_input: bool
    inputs: list[str]


def parse(text: str) -> list[Node]:
    """The nodes of a graph from its printed form, which reports that were read from a file have too. The branches of a
    torch.cond are left out."""
    nodes: list[Node] = []
    known: set[str] = set()
    for line in text.strip().partition("\n\n")[0].splitlines():
        node, end = _NODE.match(line), _RETURN.match(line)
        if node is not None:
            name, op, target, arguments = node.groups()
            inputs = [n for n in dict.fromkeys(re.findall(r"%(\w+)", arguments or "")) if n in known]
            nodes.append(Node(name, name if op == "placeholder" else _short(target), op == "placeholder", inputs))
            known.add(name)
        elif end is not None:
            inputs = [n for n in dict.fromkeys(_NAME.findall(end[1])) if n in known]
            nodes.append(Node("return", "return", True, inputs))
    return nodes


def _short(target: str) -> str:
    target = target.removeprefix("torch.").removeprefix("nn.functional.").removeprefix("operator.")
    return target if len(target) <= 24 else f"{target[:23]}…"


def drawing(text: str, label: str) -> Html | None:
    """The picture, or None where there is nothing to draw or too much."""
    nodes = parse(text)
    return _picture(nodes, label) if 0 < len(nodes) <= LIMIT else None


def beginning(text: str, label: str, most: int) -> Html | None:
    """A picture of the first nodes, and how many are left out; None where there is nothing to draw."""
    nodes = parse(text)
    left_out = len(nodes) - most
    if not nodes or left_out <= 0:
        return _picture(nodes, label) if nodes else None
    note = f"The first {most} of {len(nodes)} nodes; {plural(left_out, 'node')} left out."
    return join([_picture(nodes[:most], label), element("p", note, class_="soft")])


def _picture(nodes: list[Node], label: str) -> Html:
    places, width, height = _layout(nodes)
    edges, boxes = [], []
    for node in nodes:
        x, y, w = places[node.name]
        for source in node.inputs:
            edges.append(_edge(places[source], places[node.name]))
        box = element(
            "rect", x=f"{x - w / 2:.0f}", y=f"{y:.0f}", width=f"{w:.0f}", height=BOX, rx=5,
            class_="input" if node.is_input else "box",
        )
        label_text = element("text", node.label, x=f"{x:.0f}", y=f"{y + 17:.0f}", text_anchor="middle")
        boxes.append(element("g", element("title", node.name), box, label_text, class_="node"))
    return element(
        "svg", edges, boxes, viewBox=f"0 0 {width:.0f} {height:.0f}", width=f"{width:.0f}", height=f"{height:.0f}",
        role="img", aria_label=label,
    )


def _edge(source: tuple[float, float, float], target: tuple[float, float, float]) -> Html:
    """A line from the foot of one box to the top of another; one that passes other layers bends around the boxes
    there."""
    (sx, sy, sw), (x, y, w) = source, target
    top = sy + BOX
    bend = 0.0 if y - top <= GAP_Y else min(BEND, max(sw, w) / 2 + 10)
    third = (y - top) / 3 if bend else (y - top) / 2
    return element(
        "path",
        d=f"M{sx:.0f} {top:.0f}C{sx + bend:.0f} {top + third:.0f} {x + bend:.0f} {y - third:.0f} {x:.0f} {y:.0f}",
        class_="edge",
    )


def _layout(nodes: list[Node]) -> tuple[dict[str, tuple[float, float, float]], float, float]:
    """The centre, top and width of each box. A layer's boxes are ordered by where their inputs stand, which keeps edges
    short."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.name] = max((depth[n] + 1 for n in node.inputs), default=0)
    first_use: dict[str, int] = {}
    for node in nodes:
        for name in node.inputs:
            first_use[name] = min(first_use.get(name, depth[node.name]), depth[node.name])
    for node in nodes:  # an input that is needed late stands there
        if not node.inputs and node.name in first_use:
            depth[node.name] = first_use[node.name] - 1
    layers: dict[int, list[Node]] = {}
    for node in nodes:
        layers.setdefault(depth[node.name], []).append(node)
    centre: dict[str, float] = {}
    widths = {node.name: len(node.label) * CHARACTER + 16 for node in nodes}
    spans = {d: sum(widths[n.name] for n in layer) + GAP_X * (len(layer) - 1) for d, layer in layers.items()}
    width = max(spans.values()) + 2 * max(GAP_X, BEND / 2)
    for d in sorted(layers):
        layer = sorted(layers[d], key=lambda n: sum(centre.get(i, 0.0) for i in n.inputs) / max(len(n.inputs), 1))
        x = (width - spans[d]) / 2
        for node in layer:
            centre[node.name] = x + widths[node.name] / 2
            x += widths[node.name] + GAP_X
    tops = {node.name: GAP_Y / 2 + depth[node.name] * (BOX + GAP_Y) for node in nodes}
    places = {node.name: (centre[node.name], tops[node.name], widths[node.name]) for node in nodes}
    return places, width, max(tops.values()) + BOX + GAP_Y / 2
