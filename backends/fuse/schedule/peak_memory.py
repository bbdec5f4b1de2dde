"""How much memory nodes take in an order: what each makes, what dies with it, and what it can write over.

Only what the plan allocates is counted, and inputs that it is given for good; others, and constants, are there whatever
the order. What an operation of ATen's takes for itself while it runs (a convolution's workspace) is not known.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import torch

from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, ExternNode, Node
from framejit.backends.fuse.sizes.symbolic_size import hint, surely_equal
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass

NEVER_ALIASES: Final = {
    *(
        "linear", "matmul", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "conv1d", "conv2d", "conv3d",
        "convolution", "scaled_dot_product_attention",
    ),
    *(
        "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "embedding", "index_select", "gather", "cat",
        "stack", "cumsum",
    ),
    *("avg_pool2d", "adaptive_avg_pool2d"),
}
"""Operations whose results never share memory with their arguments."""
VIEWS: Final = frozenset(
    {"detach", "detached_view", "counted_apart", "view_of", "view_in_another_dtype", "reinterpreted"}
)
"""Functions that lowering has called for another tensor over memory that is there."""


def never_aliases(node: ExternNode) -> bool:
    """Whether its results surely have memory of their own."""
    function = node.function
    # by its schema; a composite operation may do otherwise, as dropout in inference does
    if isinstance(function, torch._ops.OpOverload):
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(function.name(), "CompositeImplicitAutograd")
        return (
            not composite
            and function.namespace == "aten"
            and all(result.alias_info is None for result in function._schema.returns)
        )
    return getattr(function, "__name__", "") in NEVER_ALIASES


def same_size(a: Buffer, b: Buffer) -> bool:
    """Whether one can have the memory of the other: elements lie at the same places in both."""
    return a.device == b.device and a.dtype.itemsize == b.dtype.itemsize and surely_equal(a.extent, b.extent)


def bytes_of(buffer: Buffer) -> int:
    """The bytes that allocating it takes."""
    size = hint(buffer.extent) * buffer.dtype.itemsize
    unit = target_of(buffer.device).allocation
    return -(-size // unit) * unit


@dataclass
class Profile:
    """The memory that an order of nodes takes."""

    during: list[int]
    """Bytes alive while each of the nodes runs, in their order."""
    replaced: dict[str, str]
    """For a buffer that is written over a dead one the name of that."""

    @property
    def peak(self) -> int:
        return max(self.during, default=0)


class Usage:
    """The memories that each node takes and uses, by the nodes' positions. A memory is alive from the first to the last
    of the nodes that use it."""

    def __init__(
        self, nodes: Sequence[Node], buffers: Mapping[str, Buffer], outputs: Iterable[str],
        given: Set[int] = frozenset(),
    ) -> None:
        """`outputs`: the buffers that the graph returns; `given`: the inputs, by position, that die with their last
        use."""
        self.given = {buffer.memory for buffer in buffers.values() if buffer.input in given}
        """The memories of such inputs, which are alive from the beginning."""
        self.size: dict[str, int] = {name: bytes_of(buffers[name]) for name in self.given}
        """Bytes of each memory that the nodes make, or are given."""
        self.used: list[list[str]] = []
        """The memories that each node makes, reads or writes."""
        self.overwrites: list[list[tuple[str, str]]] = []
        """For each node what it writes and what it reads that has the same size, where each turn overwrites just what
        it alone has read."""
        root = {name: buffer.memory for name, buffer in buffers.items()}
        shared: set[str] = set()
        reads: list[Any] = [node.reads for node in nodes]
        for node, read in zip(nodes, reads):
            if isinstance(node, ExternNode):
                if getattr(node.function, "__name__", "") in VIEWS and read:
                    root.update(dict.fromkeys(node.writes, root[next(iter(read))]))
                if not never_aliases(node):
                    shared.update(root[name] for name in (*read, *node.writes))
            self.size.update(
                (name, bytes_of(buffers[name]))
                for name in {root[name] for name in node.writes}
                if _is_made(buffers[name])
            )
        for node, read in zip(nodes, reads):
            self.used.append(
                [name for name in dict.fromkeys(root[name] for name in (*read, *node.writes)) if name in self.size]
            )
            self.overwrites.append([])
            if isinstance(node, ComputeNode):
                self.overwrites[-1] = self._overwrites(node, read, shared, buffers)
        self.users = Counter(name for used in self.used for name in used)
        outputs = [root[name] for name in outputs]
        self.given &= {*outputs, *(name for used in self.used for name in used)}  # what nobody uses goes at once
        self.given_bytes = self.bytes(self.given)
        self.own = self.size.keys() - shared - self.given
        """The memories that nodes make and nothing else can know of: what they hold may be written over when it is
        dead."""
        self.kept = {name for name in outputs if name in self.size}
        """The memories that outlive the graph."""
        self.kept_bytes = self.bytes(self.kept)

    def bytes(self, names: Iterable[str]) -> int:
        return sum(self.size[name] for name in names)

    @property
    def least(self) -> int:
        """Bytes that any order takes: a node has all that it uses at once."""
        own = (
            self.bytes(used) - self.bytes({made for made, _ in overwrites})
            for used, overwrites in zip(self.used, self.overwrites)
        )
        return max(max(own, default=0), self.kept_bytes, self.given_bytes)

    def taken(self, node: int, left: Mapping[str, int], backward: bool = False) -> list[str]:
        """The memories that no node before it uses. `left` counts the users of each that are yet to run, or `backward`
        yet to be laid out from the end."""
        return [
            name
            for name in self.used[node]
            if left[name] == (1 if backward else self.users[name]) and name not in self.given
        ]

    def dying(self, node: int, left: Mapping[str, int], backward: bool = False) -> list[str]:
        """The memories that no node after it uses, nor anybody outside."""
        return [
            name
            for name in self.used[node]
            if left[name] == (self.users[name] if backward else 1) and name not in self.kept
        ]

    def replaced(self, node: int, taken: Sequence[str], dying: Sequence[str]) -> dict[str, str]:
        """For what a node takes what it is written over, of the memories that die with the node."""
        found: dict[str, str] = {}
        for made, old in self.overwrites[node]:
            if made in taken and old in dying and made not in found and old not in found.values():
                found[made] = old
        return found

    def profile(self, order: Iterable[int]) -> Profile:
        """The memory taken if the nodes run in this order of their positions."""
        left = dict(self.users)
        result = Profile([], {})
        alive = self.given_bytes
        for node in order:
            taken, dying = self.taken(node, left), self.dying(node, left)
            replaced = self.replaced(node, taken, dying)
            alive += self.bytes(taken)
            result.during.append(alive - self.bytes(replaced))
            result.replaced.update(replaced)
            alive -= self.bytes(dying)
            for name in self.used[node]:
                left[name] -= 1
        return result


    def _overwrites(
        self, node: ComputeNode, reads: Mapping[str, list[Index]], shared: set[str], buffers: Mapping[str, Buffer]
    ) -> list[tuple[str, str]]:
        if node.reduction:  # several passes over the same elements
            return []
        places: dict[str, set[Index]] = {}
        for name, index in node.places:
            places.setdefault(buffers[name].memory, set()).add(index)
        return [
            (made, old)
            for made, stored in places.items()
            for old, indices in reads.items()
            if made != old
            and _is_made(buffers[made])
            and (_is_made(buffers[old]) or old in self.given)
            and buffers[old].memory == old
            and old not in shared
            and same_size(buffers[made], buffers[old])
            and len(stored.union(indices)) == 1
        ]


def _is_made(memory: Buffer) -> bool:
    return memory.input is None and memory.constant is None
