"""Which values of the forward are kept for the backward: the cheapest in bytes, by a minimum cut."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from typing import Final

from framejit.backends.fuse.graph.node import Node, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.fusable import is_fusable
from framejit.backends.fuse.lowering.lowerings import lowering_of
from framejit.backends.fuse.sizes.symbolic_size import as_size, hint
from framejit.backends.fuse.training.joint import JointGraph
from framejit.backends.fuse.training.minimum_cut import Network

SOURCE: Final = "what can't be computed again"
SINK: Final = "what the backward looks at"

CHEAP: Final = frozenset(("pointwise", "creation", "rearrange", "indexing", "random_numbers"))
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
    first of their gradients, and held until the last. Nor is what the backward compares computed again (`_compared`).

    What such parts make for themselves is never kept, random numbers excepted, and what they give to others is never
    computed again.
    """
    network = _Network(_Facts(joint, forward, backward, looked_at, regions))
    for value in joint.inputs:
        network.add_input(value.storage)
    for node in forward:
        operands = dict.fromkeys(value.storage for value in node.values()).keys()
        for storage in dict.fromkeys(value.storage for value in node.results if value.base is None):
            network.add_made(storage, node, operands)
    for value in looked_at:
        network.want(value.storage)
    return network.kept()


class _Facts:
    """What the price of a storage depends on besides its size."""

    def __init__(
        self, joint: JointGraph, forward: Sequence[Node], backward: Sequence[Node], looked_at: Sequence[Value],
        regions: Mapping[Node, str],
    ) -> None:
        """As for `storages_to_keep`."""
        self.made_in = {
            value.storage: regions.get(node, "") for node in forward for value in node.results if value.base is None
        }
        """For what a forward operation makes the part that is computed again as a whole; empty for none."""
        self.given = {
            value.storage
            for node in forward
            for value in node.values()
            if self.made_in.get(value.storage, "") != regions.get(node, "")
        }
        """What such parts take of what was made outside of them, and what others take of theirs."""
        self.kept_by_eager = {
            storage
            for value in looked_at
            if not self.made_in.get(storage := joint.copied.get(value, value).storage) or storage in self.given
        } | self.given
        self.constants = {value.storage for value in joint.graph.constants}
        self.results = {value.storage for value in values_in(joint.outputs)}
        self.alive = {value.storage for value in (*joint.inputs, *joint.contents())}
        """What of the inputs eager keeps, too, costs nothing."""
        self.exposed = self.alive | self.results
        """What the program may write into before the backward."""
        by_aten = [
            node for node in backward if not is_lowered(node) and any(made.base is None for made in node.results)
        ]
        self.in_memory = {value.storage for node in by_aten for value in node.values()}
        """What ATen's operations take in the backward."""
        self.compared = _compared(backward)

    def is_for_the_program(self, storage: Storage) -> bool:
        """Whether it may not be kept, for the program may write into it and eager does not keep it."""
        return storage in self.exposed and storage not in self.kept_by_eager

    def price(self, storage: Storage) -> float:
        """What keeping it costs, in bytes."""
        if storage in self.results and storage in self.kept_by_eager:
            return 0
        return 1 if storage in self.alive else max(bytes_of(storage.first), 1)


class _Network:
    """The network that is cut: an edge through each storage, as wide as keeping it costs, and edges from what it is
    computed again from."""

    def __init__(self, facts: _Facts) -> None:
        self.facts = facts
        self.network = Network()
        self._storages: dict[Storage, None] = {}
        self._again: set[Storage] = set()
        """What may be computed again, and lies in memory then."""
        self._ends: set[Storage] = set()
        """What would be computed again from that, and what is made of these on the way to something that lies in
        memory: one of each such way is kept."""
        self._drawn: set[Storage] = set()
        """Random numbers, and what is made of nothing else."""

    def add_input(self, storage: Storage) -> None:
        """An input, which is there."""
        self._add(storage)
        self._cannot_be_made(storage)

    def add_made(self, storage: Storage, node: Node, operands: Set[Storage]) -> None:
        """What a forward operation makes of operands, after these were added."""
        facts = self.facts
        self._add(storage)
        if node.ordered or (_is_cheap(node) and operands and operands <= self._drawn):
            self._drawn.add(storage)
        elif facts.made_in[storage]:
            if storage in facts.given and not facts.is_for_the_program(storage):
                self._cannot_be_made(storage)
            else:
                self.network.add_edge((storage, "in"), (storage, "out"))
                self._is_made_of(storage, operands)
            return
        if not _is_cheap(node) or storage in facts.compared:
            self._cannot_be_made(storage)
        elif operands & self._again:
            self._cannot_be_made(storage)
            self._ends.add(storage)
        else:
            if storage in facts.in_memory and not operands & self._ends:
                self._again.add(storage)
            elif storage not in facts.in_memory and operands & self._ends:
                self._ends.add(storage)
            self._is_made_of(storage, operands)

    def want(self, storage: Storage) -> None:
        """The backward looks at it."""
        if storage not in self.facts.constants:
            self.network.add_edge((storage, "out"), SINK)

    def kept(self) -> list[Value]:
        """The first values of the storages on the cheapest cut: of several, on the one that leaves least to be computed
        again."""
        behind = self.network.before_sink(SOURCE, SINK)
        return [
            storage.first for storage in self._storages if (storage, "out") in behind and (storage, "in") not in behind
        ]

    def _add(self, storage: Storage) -> None:
        if storage in self._storages or storage in self.facts.constants:
            return
        self._storages[storage] = None
        price = math.inf if self.facts.is_for_the_program(storage) else self.facts.price(storage)
        self.network.add_edge((storage, "in"), (storage, "out"), price)

    def _cannot_be_made(self, storage: Storage) -> None:
        self.network.add_edge(SOURCE, (storage, "in"))

    def _is_made_of(self, storage: Storage, operands: Set[Storage]) -> None:
        for operand in operands:
            if operand not in self.facts.constants:
                self.network.add_edge((operand, "out"), (storage, "in"))


def _compared(backward: Sequence[Node]) -> set[Storage]:
    """What of the forward the backward looks for equal elements in, in dtypes that are rounded to only on the way to
    memory: computed again, among other operations, it may differ in the last bit from what its greatest element was
    found in, and none would be equal to that."""
    makers = {value: node for node in backward for value in node.results}
    waiting = [value for node in backward if node.name in ("eq", "ne") for value in node.values()]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value not in seen and value.dtype in COMPUTE:
            seen.add(value)
            waiting += makers[value].values() if value in makers else ()
    return {value.storage for value in seen if value not in makers}


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
