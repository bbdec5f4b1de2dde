"""Graph modules whose Python is written and compiled when they are first run, which many never are: those of long
graphs, for which both take longer than much of the capture."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from framejit.environment.collector import resting

LONG: Final = 400
"""A graph with more nodes is long. Of others each call would be slower for it."""


class _Late(_LazyGraphModule):
    def _real_recompile(self) -> Any:
        with resting():  # a full collection would take several times as long
            return super()._real_recompile()


def graph_module(graph: fx.Graph) -> fx.GraphModule:
    """The module of a captured graph."""
    kind = _Late if len(graph.nodes) > LONG else fx.GraphModule
    return kind(torch.nn.Module(), graph)
