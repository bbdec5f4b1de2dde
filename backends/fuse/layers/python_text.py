"""The Python of a captured graph as torch.fx writes it, in less time where there are layers alike: torch.fx writes that
of the shortened graph, and the lines of one layer are those of the others but for names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import fx

from framejit.backends.fuse.layers.named_text import NamedText
from framejit.backends.fuse.layers.repetition import Repetition, repetition_in, returned
from framejit.backends.fuse.layers.shortened import shortened_graph
from framejit.backends.fuse.layers.units import KEPT


def python_text(graph: fx.Graph) -> tuple[str, dict[str, Any]]:
    """The definition of `forward`, and the globals that it needs."""
    found = repetition_in(graph)
    if found is not None:
        short, _, _ = shortened_graph(graph, found)
        code = short.python_code("self")
        text = _whole(graph, found, short, code.src)
        if text is not None:
            return text, code.globals
    code = graph.python_code("self")
    return code.src, code.globals


def _whole(graph: fx.Graph, found: Repetition, short: fx.Graph, text: str) -> str | None:
    """The text of a graph, given that of the shortened one; None if it has another form than torch.fx's usual one."""
    before, define, rest = text.partition("def forward(self, ")
    parameters, end, body = rest.partition("):\n")
    lines, names = body.rstrip().splitlines(), [node.name for node in short.nodes if node.op != "placeholder"]
    kept = [name for unit in found.units[:KEPT] for name in (node.name for node in unit)]
    length, start = len(found.units[0]), names.index(kept[0]) if kept[0] in names else 0
    last = start + (KEPT - 1) * length
    if (
        not (define and end)
        or parameters != ", ".join(node.name for node in short.find_nodes(op="placeholder"))
        or names[start : last + length] != kept
        or len(lines) != len(names)
        or not all(f" {name} = " in line for name, line in zip(names, lines[:-1]))
        or lines[-1] != _returning(short)
    ):
        return None
    second, third, tail = (
        NamedText("\n".join(lines[at:until]), _names(found, unit))
        for unit, at, until in (
            (1, start + length, start + 2 * length), (2, start + 2 * length, last), (KEPT - 1, last, -1),
        )
    )
    if second.text(_names(found, 2)) != third.text(_names(found, 2)):
        return None
    others = [third.text(_names(found, unit)) for unit in range(KEPT - 1, len(found.units) - 1)]
    parameters = ", ".join(node.name for node in graph.find_nodes(op="placeholder"))
    whole = [*lines[:last], *others, tail.text(_names(found, len(found.units) - 1)), _returning(graph)]
    return f"{before}{define}{parameters}{end}{_joined(whole)}{body[len(body.rstrip()) + 1:]}"


def _returning(graph: fx.Graph) -> str:
    return f"    return {returned(graph)!r}"


def _joined(lines: Sequence[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _names(found: Repetition, unit: int) -> list[str]:
    """What the lines of a unit name: its inputs, and nodes of its own and of the unit before."""
    return [node.name for node in (*found.inputs[unit], *found.units[unit], *found.units[unit - 1])]
