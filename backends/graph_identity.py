"""The number of a captured graph. The graph module carries it to the backend, so that what the backend tells is told of
the right graph; and what else capture writes into `meta` for backends."""
from __future__ import annotations

import itertools
from typing import Any, Final, NamedTuple, TypeGuard

import torch

_KEY = "framejit.graph_id"
FIRST_VERSION: Final = "framejit_version"
"""In the `meta` of a node that gives a tensor: the version that its fake had by then; absent for a tensor whose writes
are not counted."""
COUNTED_WRITES: Final = "framejit_writes"
"""In the `meta` of a placeholder: how many writes into it autograd counts."""
LAST_VERSION: Final = "framejit_last_version"
"""In the `meta` of a node of a part of a graph: the version that its result has by the part's end; absent where that is
the fake's."""
VERSIONS: Final = "framejit_versions"
"""In the `meta` of a node that a graph may be divided at: the versions that fakes had by then, by the nodes that give
them; of those that are not among them the version is the first."""
RESIZED: Final = "framejit_resized"
"""In the `meta` of a node with `out=`: that what it is given to write into gets another shape; absent otherwise."""
ACTIVATION_MEMORY: Final = "framejit_activation_memory"
"""In the `meta` of a graph module: the share, from 0 to 1, of what would be kept for the backward that may be kept;
absent for all of it."""

LAUNCH_GRAPHS: Final = "framejit_launch_graphs"
"""In the `meta` of a graph module: that what it launches on a device is to be launched at once; absent otherwise."""
AUTOTUNE: Final = "framejit_autotune"
"""In the `meta` of a graph module: that of several ways to write a kernel the one is to be taken that measures
quickest; absent otherwise."""
SAME_RANDOM_NUMBERS: Final = "framejit_same_random_numbers"
"""In the `meta` of a graph module: that the random numbers are those which eager draws; absent where others will do."""

_LAYERS: Final = "framejit_layers_alike"


class Layer(NamedTuple):
    """Nodes of a captured graph that come of the call of a module."""

    kind: object
    """The same object for layers whose nodes are alike, one by one, but for what they take."""
    nodes: list[torch.fx.Node]


def note_layers(graph: torch.fx.Graph, layers: list[Layer]) -> None:
    """Say which nodes of a graph are layers, some of which are alike, in their order. It is said to the graph itself:
    copies of it, and of its module, have other nodes."""
    setattr(graph, _LAYERS, layers)


def layers_of(graph: torch.fx.Graph) -> list[Layer]:
    """What `note_layers` was told of the graph."""
    return getattr(graph, _LAYERS, [])


def note_result(node: torch.fx.Node, result: Any) -> None:
    """Say what a node gives on fakes and, of a tensor, which version it had by then."""
    node.meta["val"] = node.meta["example_value"] = result
    if has_version(result):
        node.meta[FIRST_VERSION] = result._version


def has_version(result: object) -> TypeGuard[torch.Tensor]:
    """Whether what a node gives on fakes is a tensor whose writes are counted: those of inference mode's are not."""
    return isinstance(result, torch.Tensor) and not result.is_inference()


_numbers = itertools.count(1)


_ASKED: Final = (ACTIVATION_MEMORY, AUTOTUNE, LAUNCH_GRAPHS, SAME_RANDOM_NUMBERS)


def asked_of(gm: torch.fx.GraphModule) -> dict[str, object]:
    """What `optimize` was asked for, as the `meta` of a graph module has it: for graphs that stand for it."""
    return {name: gm.meta[name] for name in _ASKED if name in gm.meta}


def new_graph_id() -> int:
    """A number for a graph, used by no other of the process."""
    return next(_numbers)


def identify(gm: torch.fx.GraphModule, graph_id: int) -> None:
    """Give a graph module the number that its `graph` event has."""
    gm.meta[_KEY] = graph_id


def identity(gm: torch.fx.GraphModule) -> int | None:
    """The number of a graph module; None for one that framejit did not capture."""
    return gm.meta.get(_KEY)
