"""Which inputs a graph looks at, and what it draws numbers for: what has to be at hand to run it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.draws.program_generators import program_generators
from framejit.backends.fuse.autograd_nodes.second_run import SecondRun
from framejit.backends.fuse.graph.node import BATCH_NORMS, STATISTICS, TRAINING, Node, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.random_numbers.drawn_again import in_one_run
from framejit.backends.fuse.training.joint import Recorded

OVERWRITES: Final = frozenset(("zero_", "fill_", "copy_"))
"""Operations that write into all of a tensor without looking at it."""


def second_run_of(recorded: Recorded, gm: fx.GraphModule, torch_state: tuple[Any, ...]) -> SecondRun:
    """How a recorded graph is run again. `gm`: what was recorded. `torch_state`: torch's, when it is run."""
    nodes = [node for node in recorded.graph.nodes if not node.origin.is_backward]
    ordered = [node for node in nodes if node.ordered]
    devices = {value.device for node in ordered for value in (*node.results, *node.writes)}
    known = recorded.recorder.known
    roots = [known(root).storage for root in recorded.results.roots if isinstance(root, torch.Tensor)]
    lead_to_results = _lead_to(roots, nodes)
    written = frozenset(recorded.written)
    looked_at = frozenset(recorded.positions(
        place
        for place, storage in enumerate([known(fake).storage for fake in recorded.inputs])
        if storage in lead_to_results and not (place in written and _is_overwritten(storage, nodes))
    ))
    eager = (in_one_run(gm) if recorded.drawing else gm).forward
    draws = len(recorded.drawing)
    unkept = () if recorded.joined is None else recorded.unkept()
    copied = recorded.positions(place for place in unkept if not recorded.inputs[place].requires_grad)
    return SecondRun(
        eager, torch_state, tuple(sorted(devices, key=str)), written, looked_at, draws,
        looked_at.intersection(copied), tuple(program_generators(gm.graph)),
    )


def _lead_to(storages: Sequence[Storage], nodes: Sequence[Node]) -> set[Storage]:
    """The storages whose content may have part in that of these."""
    found = {*storages}
    for node in reversed(nodes):
        if any(value.storage in found for value in (*node.results, *node.writes)):
            found.update(value.storage for value in _looked_at(node))
    return found


def _is_overwritten(storage: Storage, nodes: Sequence[Node]) -> bool:
    """Whether the first operation on an input writes into all of it without looking."""
    for node in nodes:
        if any(value.storage is storage for value in node.values()):
            return (
                node.operation._opname in OVERWRITES
                and node.args[0] is storage.first
                and all(value.storage is not storage for value in values_in((node.args[1:], node.kwargs.values())))
            )
    return False


def _looked_at(node: Node) -> Iterator[Value]:
    if node.operation._schema.name in BATCH_NORMS and node.args[TRAINING]:
        yield from values_in([arg for position, arg in enumerate(node.args) if position not in STATISTICS])
        yield from values_in(node.kwargs.values())
    else:
        yield from node.values()
