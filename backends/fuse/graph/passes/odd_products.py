"""Matrix products on a GPU whose sizes are no multiple of 16 bytes are made a little larger.

The quick kernels of half precision load 16 bytes at once. Next to a vocabulary of 50257 classes, for one, a product
takes four times as long as next to 50264 (on an H200). So operands are written into memory that has a few rows or
columns of zeros more, and the result is a part of the larger one.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values
from framejit.backends.fuse.graph.origin import UNKNOWN
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.targets.lookup import target_of
from framejit.fakes.light_torch import light

HALF: Final = (torch.float16, torch.bfloat16)
ROW: Final = 8
"""Elements of half precision in 16 bytes."""
WIDE: Final = 1024
"""A size from which on it pays to copy operands."""


def is_odd(size: Any) -> bool:
    """Whether a product with such a size is to be made larger."""
    return type(size) is int and size >= WIDE and size % ROW != 0


def is_product(operation: torch._ops.OpOverload) -> bool:
    """Whether an operation is a product of two matrices, with or without a bias before them."""
    return operation in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)


def prefers_even_sizes(a: Value | torch.Tensor, b: Value | torch.Tensor) -> bool:
    """Whether the sizes of a product of these decide how quick it is."""
    return a.dtype in HALF and a.dtype == b.dtype and target_of(a.device).prefers_layouts


def longer_row(size: int) -> int:
    """The next size that is a multiple of 16 bytes."""
    return size + -size % ROW


def odd_products(graph: Graph, context: Context) -> Graph:
    """Make products with odd sizes larger. Their numbers of columns may be odd where results lie in longer rows
    already."""
    if any(is_product(node.operation) for node in graph.nodes):
        _Padding(graph).run()
    return graph


class _Padding:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.padded: dict[tuple[Value, int], Value] = {}
        """What was made larger, and by which dimension."""
        self.origin = UNKNOWN

    def run(self) -> None:
        with light(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
            self.graph.rewrite(self._instead)

    def _instead(self, node: Node) -> list[Node] | None:
        if node.writes:  # the program's, into inputs
            self.padded.clear()
        if not is_product(node.operation) or node.kwargs or not prefers_even_sizes(*node.args[-2:]):
            return None
        self.origin = node.origin
        *bias, a, b = node.args
        (rows, inner), columns = a.shape, b.shape[1]
        in_longer_rows = is_odd(columns) and node.result.strides == (longer_row(columns), 1)
        if not (is_odd(rows) or is_odd(inner) or in_longer_rows) or (bias and (bias[0].dim() != 1 or is_odd(rows))):
            return None
        made: list[Node] = []
        if is_odd(inner):
            a, b = self._larger(a, 1, made), self._larger(b, 0, made)
        if is_odd(rows):
            a = self._larger(a, 0, made)
        if in_longer_rows:
            b = self._larger(b, 1, made)
            bias = [self._larger(each, 0, made) for each in bias]
        return self._part(node, (*bias, a, b), made)

    def _part(self, node: Node, operands: tuple[Value, ...], made: list[Node]) -> list[Node] | None:
        """The product of larger operands, and the node's result as a part of it: in the storage that it has, for views
        of it are there already."""
        *_, a, b = operands
        result = node.result
        strides = (b.shape[1], 1) if b.shape[1] != result.shape[1] else result.strides
        if strides != result.strides:
            return None
        with self.graph.fake_mode:
            fake = torch.empty((a.shape[0], b.shape[1]), dtype=result.dtype, device=result.device)
        node.detach()
        if tuple(fake.shape) == result.shape:
            made.append(Node(node.operation, operands, {}, result, node.origin))
            return made
        whole = result.base = Value(fake, result.storage)
        result.storage.first = whole
        made.append(Node(node.operation, operands, {}, whole, node.origin))
        args = (whole, [*result.shape], [*result.strides], 0)
        made.append(Node(torch.ops.aten.as_strided.default, args, {}, result, node.origin))
        return made

    def _larger(self, value: Value, dim: int, made: list[Node]) -> Value:
        """A matrix or vector with zeros behind the last row or column. A transposed one is the transposed of a larger
        one."""
        if value.base is not None and value.maker is not None and value.maker.operation is torch.ops.aten.t.default:
            return self._made(torch.ops.aten.t.default, (self._larger(value.base, 1 - dim, made),), made)
        known = self.padded.get((value, dim))
        if known is None:
            known = self._with_zeros(value, dim, made)
            self.padded[value, dim] = known
        return known

    def _with_zeros(self, value: Value, dim: int, made: list[Node]) -> Value:
        """A copy with zeros behind it: two writes, for one would have to ask at each place which it is."""
        aten, size = torch.ops.aten, value.shape[dim]
        sizes = [longer_row(size) if axis == dim else length for axis, length in enumerate(value.shape)]
        with self.graph.fake_mode:
            fake = torch.empty(sizes, dtype=value.dtype, device=value.device)
        whole = Value(fake)
        made.append(
            Node(aten.empty.memory_format, (sizes,), {"dtype": value.dtype, "device": value.device}, whole, self.origin)
        )
        part = self._made(aten.slice.Tensor, (whole, dim, 0, size), made)
        made.append(Node(aten.copy_.default, (part, value), {}, part, self.origin))
        rest = self._made(aten.slice.Tensor, (whole, dim, size, sizes[dim]), made)
        made.append(Node(aten.zero_.default, (rest,), {}, rest, self.origin))
        return whole

    def _made(self, operation: torch._ops.OpOverload, args: tuple[Any, ...], made: list[Node]) -> Value:
        with self.graph.fake_mode:
            fake = operation(*[map_values(arg, lambda value: value.fake) for arg in args])
        base = None if is_product(operation) else args[0]
        value = Value(fake, None if base is None else base.storage, base)
        made.append(Node(operation, args, {}, value, self.origin))
        return value
