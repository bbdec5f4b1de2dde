"""Which values of the forward are kept for the backward: the cheapest in bytes, by a minimum cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import networkx
from networkx.algorithms.flow import boykov_kolmogorov

from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.fusable import is_fusable
from framejit.backends.fuse.lowering.lowerings import lowering_of
from framejit.backends.fuse.sizes.symbolic_size import as_size, hint
from framejit.backends.fuse.training.joint import JointGraph

SOURCE: Final = "what can't be computed again"
SINK: Final = "what the backward looks at"

CHEAP: Final = frozenset(("pointwise", "creation", "rearrange", "indexing"))
"""The files of lowerings whose operations cost a kernel which reads the same memory anyway next to nothing: no
reductions, whose kernels would have to read twice."""


def storages_to_keep(
    joint: JointGraph, forward: Sequence[Node], backward: Sequence[Node], looked_at: Sequence[Value],
    regions: Mapping[Node, str],
) -> list[Value]:
    """The first values of the storages that the forward keeps. `looked_at`: what the backward takes that no gradient
    has part in. `regions`: what is computed again as a whole, by the name of the part.

    Inputs and outputs are among them only where eager's autograd keeps them, too: what the program may write into
    before the backward is the same then. Outputs that eager keeps are kept: they live as long in eager, and the
    backward sees what the program writes into `output.data`. What ATen's operations take in the backward lies in memory
    there, and is no step on the way to others: a chain of residual blocks would be computed again as a whole before the
    first of their gradients, and held until the last.

    What such parts make for themselves is never kept, random numbers excepted, and what they give to others is never
    computed again.
    """
    flow = networkx.DiGraph()
    flow.add_nodes_from((SOURCE, SINK))
    exposed = {value.storage for value in (*joint.inputs, *joint.contents(), *values_in(joint.outputs))}
    made_in = {
        value.storage: regions.get(node, "") for node in forward for value in node.results if value.base is None
    }
    given = {
        value.storage
        for node in forward
        for value in node.values()
        if made_in.get(value.storage, "") != regions.get(node, "")
    }
    """What such parts take of what was made outside of them, and what others take of theirs."""
    kept_by_eager = {
        storage
        for value in looked_at
        if not made_in.get(storage := joint.copied.get(value, value).storage) or storage in given
    } | given
    free = {value.storage for value in joint.graph.constants}
    results = {value.storage for value in values_in(joint.outputs)}
    # what eager keeps of the inputs, too, costs nothing
    alive = {value.storage for value in (*joint.inputs, *joint.contents())}
    by_aten = [node for node in backward if not is_lowered(node) and any(made.base is None for made in node.results)]
    in_memory = {value.storage for node in by_aten for value in node.values()}
    again: set[Storage] = set()
    """What may be computed again, and lies in memory then."""
    ends: set[Storage] = set()
    """What would be computed again from that, and what is made of these on the way to something that lies in memory:
    one of each such way is kept."""
    drawn: set[Storage] = set()
    """Random numbers, and what is made of nothing else."""
    sizes: dict[Storage, float] = {}

    def add(storage: Storage) -> None:
        if storage not in sizes and storage not in free:
            size = 1 if storage in alive else max(bytes_of(storage.first), 1)
            size = sizes[storage] = 0 if storage in results and storage in kept_by_eager else size
            if storage in exposed and storage not in kept_by_eager:
                flow.add_edge((storage, "in"), (storage, "out"))
            else:
                flow.add_edge((storage, "in"), (storage, "out"), capacity=size)

    for value in joint.inputs:
        add(value.storage)
        flow.add_edge(SOURCE, (value.storage, "in"))
    for node in forward:
        fresh = dict.fromkeys(value.storage for value in node.results if value.base is None)
        for storage in fresh:
            add(storage)
            operands = {value.storage for value in node.values()}
            if node.ordered or (_is_cheap(node) and operands and operands <= drawn):
                drawn.add(storage)
            elif made_in[storage]:
                if storage in given and (storage not in exposed or storage in kept_by_eager):
                    flow.add_edge(SOURCE, (storage, "in"))
                    continue
                flow[storage, "in"][storage, "out"].pop("capacity", None)
                for operand in operands - free:
                    flow.add_edge((operand, "out"), (storage, "in"))
                continue
            if not _is_cheap(node):
                flow.add_edge(SOURCE, (storage, "in"))
                continue
            if operands & again:
                flow.add_edge(SOURCE, (storage, "in"))
                ends.add(storage)
                continue
            if storage in in_memory and not operands & ends:
                again.add(storage)
            elif storage not in in_memory and operands & ends:
                ends.add(storage)
            for value in node.values():
                if value.storage not in free:
                    flow.add_edge((value.storage, "out"), (storage, "in"))
    for value in looked_at:
        if value.storage not in free:
            flow.add_edge((value.storage, "out"), SINK)
    return [storage.first for storage in _cut(flow, [*sizes])]


def bytes_of(value: Value) -> int:
    """The memory that a value takes, with the sizes of now."""
    return int(hint(as_size(value.numel()))) * value.itemsize


def _is_cheap(node: Node) -> bool:
    """Whether an operation may be computed a second time."""
    return is_lowered(node) and not node.ordered and _family(node) in CHEAP


def _family(node: Node) -> str:
    lowering = lowering_of(node.name, node.operation._overloadname)
    return lowering.__module__.rpartition(".")[2] if lowering is not None else ""


def is_lowered(node: Node) -> bool:
    """Whether an operation becomes loops of ours, which don't raise; ATen's may."""
    return lowering_of(node.name, node.operation._overloadname) is not None and is_fusable(node) and accepts(node)


def _cut(flow: networkx.DiGraph, storages: Sequence[Storage]) -> list[Storage]:
    """The storages on a minimum cut: of several, on the one that leaves least to be computed again."""
    residual = boykov_kolmogorov(flow, SOURCE, SINK)
    before_sink: set[str | tuple[Storage, str]] = {SINK}
    waiting = [*before_sink]
    while waiting:
        here = waiting.pop()
        for there in residual.pred[here]:
            if there not in before_sink and residual[there][here]["flow"] < residual[there][here]["capacity"]:
                before_sink.add(there)
                waiting.append(there)
    return [storage for storage in storages if (storage, "out") in before_sink and (storage, "in") not in before_sink]
