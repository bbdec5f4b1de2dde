"""What the storages of a graph hold at the present point of the program."""

from __future__ import annotations

from collections import Counter
from typing import Any

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.known import KnownValues
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import LazyBuffer, Tensor
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.plan.plan_functions import reinterpreted
from framejit.backends.fuse.sizes.symbolic_size import as_size, as_sizes, hint


class Held:
    """A storage's present content, where in the storage the content begins, and which input it is."""

    def __init__(self, content: LazyBuffer, offset: int, input: int | None = None) -> None:
        self.content, self.offset, self.input = content, offset, input


class Storages:
    """The storages of all values that have been met. Values whose storage is known are views of its content."""

    def __init__(self, builder: Builder, graph: Graph) -> None:
        self.builder, self.constants = builder, graph.constants
        self.known = KnownValues(graph)
        self._held: dict[Storage, Held] = {}
        self._uses = _uses(graph)
        self._written = graph.written()
        self._returned = {value.storage for value in graph.returned()}
        self.written: list[int] = []
        """Inputs that kernels of ours have written into, once for each time."""
        self.counted_by_aten: Counter[int] = Counter()
        """How often ATen raises the version counters of the inputs that it has written into."""

    def add_input(self, value: Value, name: str, position: int) -> None:
        """An input of the graph. One that shares its storage with an earlier one is a view of that."""
        b = self.builder
        if self.knows(value):
            return
        buffer = b.buffer(value.shape, value.strides, value.dtype, value.device, name=name, input=position)
        self._held[value.storage] = Held(b.held(buffer), as_size(value.offset), position)

    def knows(self, value: Value) -> bool:
        """Whether it is a view of something that has been made before."""
        return value.storage in self._held

    def is_written(self, value: Value) -> bool:
        """Whether the graph writes into the value's storage anywhere."""
        return value.storage in self._written

    def storage(self, value: Value) -> Held:
        """The content of a value's storage, which is known or a constant."""
        found = self._held.get(value.storage)
        if found is None:
            constant = self.constants[value].tensor
            b = self.builder
            buffer = b.buffer(
                value.shape, value.strides, value.dtype, value.device, name=b.free_name("constant"), constant=constant
            )
            found = self._held[value.storage] = Held(b.held(buffer), int(value.offset))
        return found

    def tensor(self, value: Value) -> Tensor:
        """The value's elements at the present point of the program."""
        held = self.storage(value)
        if value.storage in self._returned:
            held.content.is_returned = True
        if value.dtype != held.content.dtype:
            return self._as_dtype(value, held)
        tensor = Tensor(
            held.content, as_sizes(value.shape), as_sizes(value.strides), as_size(value.offset) - held.offset
        )
        if not lies_inside(tensor):
            raise NotFusable(
                "a view reaches past the tensor that it is a view of" if held.input is None else
                "it looks past the ends of an input into the storage that the input is a part of"
            )
        return tensor

    def _as_dtype(self, value: Value, held: Held) -> Tensor:
        """A view in another dtype: a buffer of its own, though it lies over the same memory."""
        if self.is_written(value):
            raise NotFusable("something is viewed in another dtype and written in place")
        b = self.builder
        b.realise(held.content)
        base = Tensor.of(held.content)
        buffer = b.buffer(value.shape, value.strides, value.dtype, value.device)
        offset = value.offset * value.itemsize - held.offset * held.content.dtype.itemsize
        b.extern(
            reinterpreted,
            (base, value.dtype, as_sizes(value.shape), as_sizes(value.strides), as_size(offset)),
            results=buffer,
        )
        return Tensor.of(b.held(buffer))

    def bind(self, value: Value, tensor: Tensor) -> None:
        """A value that has a storage of its own has the elements of a tensor."""
        content = tensor.content
        b = self.builder
        if content.bound or tensor.offset or tensor.dtype != value.dtype or not _same_places(tensor, value):
            content = _relaid(b, tensor, value)
        content.bound = True
        if content.buffer is None:
            content.known = lambda: self.known.value(value)
        self._held[value.storage] = Held(content, as_size(value.offset))
        self.settle_if_shared(value, content)

    def settle_if_shared(self, value: Value, content: LazyBuffer) -> None:
        """Put the new content of a value's storage into memory if it costs something and is looked at more than
        once, or if the program, too, is to see the very same."""
        uses = self._uses[value.storage]
        stays = value.storage in self._returned and not self.is_written(value)
        if uses and stays and value.dtype in COMPUTE:
            self.builder.realise(content)
        elif uses > 1:
            self.builder.computed_once(Tensor.of(content))

    def input_content(self, position: int) -> LazyBuffer:
        """The present content of an input."""
        return next(held.content for held in self._held.values() if held.input == position)

    def operands(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a node with Tensors for values."""
        return tuple(map(self.operand, node.args)), {key: self.operand(value) for key, value in node.kwargs.items()}

    def operand(self, value: Any) -> Any:
        """An argument with Tensors for values."""
        if isinstance(value, Value):
            return self.tensor(value)
        return type(value)(map(self.operand, value)) if type(value) in (list, tuple) else as_size(value)


def _uses(graph: Graph) -> Counter[Storage]:
    """How often each storage is looked at; views of it do not count, for they look only when somebody looks at them."""
    uses: Counter[Storage] = Counter()
    for node in graph.nodes:
        made = {value.storage for value in node.returned()}
        for value in node.values():
            if node.operation._schema.is_mutable or value.storage not in made:
                uses[value.storage] += 1
    return uses


def _same_places(tensor: Tensor, value: Value) -> bool:
    """Whether the content, as the tensor sees it, lies in memory just as the value does, and there is nothing else in
    it."""
    return (
        tensor.covers_content
        and tensor.sizes == as_sizes(value.shape)
        and all(
            size == 1 or stride == other
            for size, stride, other in zip(tensor.sizes, tensor.strides, as_sizes(value.strides))
        )
    )


def _relaid(b: Builder, tensor: Tensor, value: Value) -> LazyBuffer:
    """A content of its own with the value's strides and the tensor's elements."""
    b.prepare(tensor)
    content = tensor.content
    if not content.bound and content.buffer is None and tensor.is_root:
        made = b.lazy(
            value.shape, value.strides, value.dtype, value.device, content.reader or tensor.at, content.parents, 0
        )
        made.ops, made.loads, made.origins, made.cuts = content.ops, content.loads, content.origins, content.cuts
        return made
    return b.lazy(value.shape, value.strides, value.dtype, value.device, tensor.at, [content], 0)


def lies_inside(tensor: Tensor) -> bool:
    """Whether a view reaches no further than its content, by the sizes at hand; only `as_strided` gives one that
    does."""

    def end(view: Tensor | LazyBuffer) -> int:
        return sum((hint(size) - 1) * hint(stride) for size, stride in zip(view.sizes, view.strides))

    if any(hint(size) == 0 for size in tensor.sizes):
        return True
    return 0 <= hint(tensor.offset) and hint(tensor.offset) + end(tensor) <= end(tensor.content)
