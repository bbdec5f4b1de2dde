"""The passes in order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

import torch
from torch import fx

from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.graph.check import ResultsChecker, check
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.graph.passes.autocast import autocast
from framejit.backends.fuse.graph.passes.decompose import decompose
from framejit.backends.fuse.graph.passes.dropout import dropout
from framejit.backends.fuse.graph.passes.fold_norms import fold_norms
from framejit.backends.fuse.graph.passes.freeze import freeze
from framejit.backends.fuse.graph.passes.layouts import layouts
from framejit.backends.fuse.graph.passes.made_numbers import numbers
from framejit.backends.fuse.graph.passes.odd_products import odd_products
from framejit.backends.fuse.graph.passes.pack_weights import pack_weights
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.passes.philox import philox
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import NotFusable, PassFailed
from framejit.config import config
from framejit.events import warn
from framejit.late_dataclass import dataclass
from framejit.suggest import did_you_mean
from framejit.symbols.conditions import Conditions


@dataclass(frozen=True)
class Pass:
    """A pass by name. `needed` says what would be wrong without it; it is empty for one that can be switched off."""

    name: str
    run: Callable[[Graph, Context], Graph]
    needed: str = ""


PASSES: Final = (
    Pass("layouts", layouts),  # first, for it has composite operations decomposed anew
    Pass("autocast", autocast, needed="autocast would not convert the parts of composite operations"),
    Pass("decompose", decompose),
    Pass("numbers", numbers, needed="tensors that are made of numbers would be the same object at each call"),
    Pass("dropout", dropout),
    Pass("philox", philox, needed="the same seed would lead to other random numbers where gradients are wanted"),
    Pass("fold_norms", fold_norms),
    Pass("freeze", freeze),
    Pass("pack_weights", pack_weights),
    Pass("odd_products", odd_products),
)

Observer = Callable[[str, str], None]
"""Is told the name of a pass, and the text of the graph that it changed."""

always_checked = False
"""Whether graphs are checked between passes in any case; tests say so."""


def run_passes(
    graph: Graph, gm: fx.GraphModule | None, examples: Sequence[torch.Tensor], observe: Observer | None = None
) -> Graph:
    """The graph as lowering takes it. Raises NotFusable, or PassFailed where a pass raises."""
    context = Context(gm, examples)
    off = switched_off(config.passes_off)
    results = ResultsChecker()
    text = str(text_of(graph)) if observe else ""
    for each in PASSES:
        if each.name in off:
            continue
        try:
            graph = each.run(graph, context)
            stages[each.name] += 1
            checked(graph, results)
        except NotFusable:
            raise
        except Exception as e:
            raise PassFailed(each.name, e) from e
        if observe:
            before, text = text, str(text_of(graph))
            if text != before:
                observe(each.name, text)
    return graph


def checked(graph: Graph, results: ResultsChecker | None = None) -> None:
    """Check a graph where that is wanted. `results`: what has checked it before other passes."""
    if config.debug or always_checked:
        check(graph)
    if config.debug:
        (results or ResultsChecker()).check(graph)


def graph_before(name: str, gm: fx.GraphModule, examples: Sequence[torch.Tensor], conditions: Conditions | None) -> str:
    """The text of the graph that a pass is given: recorded anew, for passes change a graph in place."""
    graph = record_graph(gm, examples, keeps, conditions)
    for each in PASSES:
        if each.name == name:
            break
        if each.name not in switched_off(config.passes_off):
            graph = each.run(graph, Context(gm, examples))
    return str(text_of(graph))


@cache
def switched_off(names: str) -> frozenset[str]:
    """The passes that are not to run, of a list with commas. What can't be switched off is told once, and runs."""
    known = {each.name: each for each in PASSES}
    off = set()
    for name in {name.strip() for name in names.split(",")} - {""}:
        if name not in known:
            warn(f"framejit.config.passes_off names {name!r}, which is no pass{did_you_mean(name, known)}")
        elif known[name].needed:
            warn(f"framejit.config.passes_off names {name!r}, which runs nevertheless: without it {known[name].needed}")
        else:
            off.add(name)
    return frozenset(off)
