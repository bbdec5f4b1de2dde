"""What lowering writes into: the buffers and nodes of the graph under construction."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any
from weakref import WeakSet

import torch

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, const, jumps, rounded
from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, ExternNode, Layout, Node, Store
from framejit.backends.fuse.lowering.lowered_tensor import (
    MOST_LOADS,
    MOST_OPS,
    Cuts,
    LazyBuffer,
    Reader,
    Tensor,
    broadcast,
    broadcast_sizes,
    compute_dtype,
    contiguous_strides,
    loops,
)
from framejit.backends.fuse.sizes.symbolic_size import as_sizes, surely_equal
from framejit.backends.fuse.targets.lookup import target_of


class Builder:
    """Makes buffers and nodes; puts contents into memory when that is needed."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.nodes: list[Node] = []
        self.origin = ""
        """The user's source line that is being lowered."""
        self.products: set[str] = set()
        """Buffers that loops of matrix products fill."""
        self._constants: list[torch.Tensor] = []
        self._unrealised: WeakSet[LazyBuffer] = WeakSet()
        self._in_memory: dict[str, list[LazyBuffer]] = {}
        """By memories the contents that lie there."""
        self._versions: Counter[str] = Counter()
        """By memories how many buffers refer to them."""
        self._zeros: dict[tuple[int, torch.dtype, torch.device], Buffer] = {}

    # ---- buffers ----

    def buffer(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        name: str = "",
        input: int | None = None,
        memory: str = "",
        constant: torch.Tensor | None = None,
    ) -> Buffer:
        """A new buffer; without a name it is numbered."""
        name = name or self.free_name("t")
        made = Buffer(name, as_sizes(sizes), as_sizes(strides), dtype, device, input, memory, constant)
        self.buffers[name] = made
        self._versions[made.memory] += 1
        return made

    def free_name(self, prefix: str) -> str:
        """A numbered name that no buffer has: inputs, which come first, are called as the program calls them, and that
        may be anything."""
        return next(name for number in count(len(self.buffers)) if (name := f"{prefix}{number}") not in self.buffers)

    def shared(self, value: torch.Tensor) -> torch.Tensor:
        """A value that is the same in each call, in the memory of an equal one if there is one: such as the positions
        that each of several masks is made of."""
        if value.is_meta or value.untyped_storage().nbytes() != value.numel() * value.itemsize:
            return value
        for known in self._constants:
            if (known.dtype, known.device, known.numel()) == (value.dtype, value.device, value.numel()) and torch.equal(
                _bytes(known), _bytes(value)
            ):
                return known.as_strided(value.shape, value.stride())
        self._constants.append(value)
        return value

    def next_version(self, buffer: Buffer) -> Buffer:
        """The buffer as it is after something has been written into it."""
        first = self.buffers[buffer.memory]
        number = self._versions[first.memory]
        return self.buffer(
            first.sizes,
            first.strides,
            first.dtype,
            first.device,
            name=f"{first.name}@{number}",
            input=first.input,
            memory=first.memory,
            constant=first.constant,
        )

    def is_shared(self, memory: str) -> bool:
        """Whether more than one buffer refers to this memory, apart from those it was joined of."""
        return any(
            other.memory == memory and other.name != memory and not other.whole for other in self.buffers.values()
        )

    # ---- contents ----

    def origins_of(self, tensor: Tensor) -> tuple[str, ...]:
        """The source lines of what is fused into a reader of the tensor, and the present one."""
        return (
            tuple(dict.fromkeys((*tensor.content.origins, *self.origins)))
            if tensor.content.buffer is None
            else self.origins
        )

    @property
    def origins(self) -> tuple[str, ...]:
        return (self.origin,) if self.origin else ()

    def lazy(
        self, sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device, reader: Reader,
        parents: Sequence[LazyBuffer], ops: int, slow: bool = False
    ) -> LazyBuffer:
        """A content that is computed where it is read. `ops`: the operations for an element, apart from those of its
        parents; `slow`: whether one of them takes tens of instructions."""
        sizes, strides = as_sizes(sizes), as_sizes(strides)
        waiting = [parent for parent in parents if parent.buffer is None]
        if (
            sum(parent.ops for parent in waiting) + ops > MOST_OPS
            or sum(parent.loads for parent in waiting) + len(parents) - len(waiting) > MOST_LOADS
        ):
            for parent in waiting:
                if not parent.is_cheap:
                    self.realise(parent)
        waiting = [parent for parent in parents if parent.buffer is None]
        content = LazyBuffer(
            sizes,
            strides,
            dtype,
            device,
            reader=reader,
            parents=parents,
            ops=ops + sum(parent.ops for parent in waiting),
            loads=len(parents) - len(waiting) + sum(parent.loads for parent in waiting),
            read=sum(parent.read if parent.buffer is None else parent.bytes for parent in {*parents}),
            slow=slow or any(parent.slow for parent in waiting),
            origins=tuple(dict.fromkeys((*(origin for parent in waiting for origin in parent.origins), *self.origins))),
        )
        self._unrealised.add(content)
        return content

    def map(
        self, body: Callable[..., Expr], *operands: Tensor, dtype: torch.dtype, sizes: Sequence[int] | None = None,
        ops: int = 1, slow: bool = False,
    ) -> Tensor:
        """A tensor whose elements `body` makes of the operands' elements, which are broadcast.

        `body` gets and gives expressions in the dtypes that values are computed in.
        """
        if sizes is None:
            sizes = broadcast_sizes(*(operand.sizes for operand in operands))
        sizes = as_sizes(sizes)
        self.prepare(*operands)
        for operand in operands:
            if operand.content.slow and operand.content.is_repeated(sizes):
                self.realise(operand.content)
        kept = compute_dtype(dtype)

        def reader(indices: Sequence[Index]) -> Expr:
            values = [operand.at(broadcast(operand, indices)) for operand in operands]
            made = cast(body(*values), kept)
            if any(operand.dtype in COMPUTE for operand in operands) and jumps(made, values):
                made = cast(body(*(rounded(value, each.dtype) for value, each in zip(values, operands))), kept)
            return made

        device = next((operand.device for operand in operands if operand.sizes), operands[0].device)
        made = self.lazy(
            sizes, contiguous_strides(sizes), dtype, device, reader, [operand.content for operand in operands], ops,
            slow,
        )
        made.cuts = _common_cuts(operands, made.sizes)
        return Tensor.of(made)

    def indexed(
        self, reader: Reader, *operands: Tensor, sizes: Sequence[int], dtype: torch.dtype, device: torch.device,
        ops: int = 0,
    ) -> Tensor:
        """A tensor whose elements `reader` gives, which may look at any elements of the operands."""
        self.prepare(*operands)
        sizes = as_sizes(sizes)
        return Tensor.of(
            self.lazy(
                sizes, contiguous_strides(sizes), dtype, device, reader, [operand.content for operand in operands], ops
            )
        )

    def held(self, buffer: Buffer) -> LazyBuffer:
        """The content of a buffer that something else fills."""
        content = LazyBuffer(buffer.sizes, buffer.strides, buffer.dtype, buffer.device, buffer=buffer)
        self._in_memory.setdefault(buffer.memory, []).append(content)
        return content

    def zeros(self, size: int, dtype: torch.dtype, device: torch.device) -> Buffer:
        """A buffer of so many zeros, which all that ask for it share: who counts in it leaves zeros behind."""
        found = self._zeros.get((size, dtype, device))
        if found is None:
            found = self._zeros[size, dtype, device] = self.buffer((size,), (1,), dtype, device)
            place = fresh_var("i", size)
            self.compute((place,), (), [Store(found.name, Index.of(place), const(0, dtype))], device, ())
        return found

    def prepare(self, *operands: Tensor) -> None:
        """Put into memory what can't be read otherwise."""
        for operand in operands:
            if not operand.is_readable:
                self.realise(operand.content)

    def computed_once(self, tensor: Tensor) -> Tensor:
        """The tensor, in memory if it would cost much to compute it more than once."""
        content = tensor.content
        if (
            content.buffer is None
            and not content.is_cheap
            and not (target_of(content.device).hides_work and content.is_cheap_to_read)
        ):
            self.realise(content)
        return tensor

    def finish_products(self, tensor: Tensor) -> None:
        """Put into memory what has been made, element by element, of products' results, before loops of another shape
        read it: as part of the loops of the product."""
        content = tensor.content
        found: dict[LazyBuffer, bool] = {}
        while self.products and content.buffer is None and self._has_product(content, found):
            within = [parent for parent in {*content.parents} if self._has_product(parent, found)]
            if len(within) > 1 or within[0].buffer is not None:
                self.realise(content)
                return
            content = within[0]

    def _has_product(self, content: LazyBuffer, found: dict[LazyBuffer, bool]) -> bool:
        """Whether an element of a content is made of what a product gave."""
        if content not in found:
            found[content] = (
                content.buffer.name in self.products if content.buffer is not None
                else any([
                    surely_equal(math.prod(parent.sizes), math.prod(content.sizes)) and self._has_product(parent, found)
                    for parent in content.parents
                ])
            )
        return found[content]

    def realise(self, content: LazyBuffer) -> Buffer:
        """The buffer that holds a content; now it is filled if it wasn't yet."""
        if content.buffer is not None:
            return content.buffer
        assert content.reader is not None
        value = content.known() if content.known else None
        if value is not None:
            buffer = self.buffer(
                content.sizes, content.strides, content.dtype, content.device, constant=self.shared(value)
            )
            self.put(content, buffer)
            return buffer
        buffer = self.buffer(content.sizes, content.strides, content.dtype, content.device)
        if content.cuts is not None:
            self._store_apart(content, content.reader, content.cuts, buffer)
        else:
            self._store(content, content.reader, buffer, [0] * len(content.sizes))
        self.put(content, buffer)
        return buffer

    def _store(self, content: LazyBuffer, reader: Reader, buffer: Buffer, starts: Sequence[int]) -> None:
        """Add the loops that fill a buffer with a content, from the indices `starts` on."""
        parallel, turns = loops(buffer.sizes, buffer.strides)
        indices = [turn + start for turn, start in zip(turns, starts)]
        element = cast(reader(indices), content.dtype)
        self.compute(
            parallel, (), [Store(buffer.name, strided(indices, buffer.strides), element)],
            content.device, content.origins,
        )

    def _store_apart(self, content: LazyBuffer, reader: Reader, cuts: Cuts, whole: Buffer) -> None:
        """Fill a buffer piece by piece."""
        starts = [0] * len(content.sizes)
        parts = []
        for number, length in enumerate(cuts.lengths):
            sizes = [length if dim == cuts.dim else size for dim, size in enumerate(content.sizes)]
            part = self.buffer(
                sizes, content.strides, content.dtype, content.device, name=f"{whole.name}.{number}", memory=whole.name
            )
            part.whole, part.offset = whole.name, starts[cuts.dim] * content.strides[cuts.dim]
            self._store(content, reader, part, starts)
            starts[cuts.dim] += length
            parts.append(part.name)
        whole.parts = tuple(parts)

    def put(self, content: LazyBuffer, buffer: Buffer) -> None:
        """From here on the content is read from the buffer."""
        content.put(buffer)
        self._unrealised.discard(content)
        self._in_memory.setdefault(buffer.memory, []).append(content)

    def layout(self, tensor: Tensor) -> Layout:
        """The tensor in memory."""
        return Layout(self.realise(tensor.content), tensor.sizes, tensor.strides, tensor.offset)

    def readers_of(self, memory: str) -> Iterator[LazyBuffer]:
        """The contents that are not in memory themselves and depend on what is in this one."""
        known: dict[LazyBuffer, bool] = {}
        found = {reader for held in self._in_memory.get(memory, ()) for reader in held.readers()}
        # in the order of their making, for a program must come out the same each time
        return (
            content
            for content in sorted(found, key=lambda content: content.number)
            if content in self._unrealised and content.reads_memory(memory, known)
        )

    # ---- nodes ----

    def compute(
        self, parallel: tuple[Var, ...], reduction: tuple[Var, ...], stores: list[Store], device: torch.device,
        origins: tuple[str, ...] | None = None
    ) -> None:
        """Add a loop nest."""
        origins = self.origins if origins is None else origins
        self.nodes.append(ComputeNode(parallel, reduction, stores, device, origins))

    def extern(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any] | None = None,
        results: Any = None,
        written: Sequence[Buffer] = (),
        ordered: bool = False,
        speaks: bool = False,
        accepted: Callable[[], bool] | None = None,
    ) -> None:
        """Add a call of an operation whose tensors are Tensors here, and Layouts in the node.

        `written`: the new versions of buffers that it writes into. The rest is as in the node.
        """
        reads: dict[str, None] = {}

        def lower(value: Any) -> Any:
            if isinstance(value, Tensor):
                layout = self.layout(value)
                reads[layout.buffer.name] = None
                return layout
            return type(value)(map(lower, value)) if type(value) in (list, tuple) else value

        args, kwargs = tuple(map(lower, args)), {key: lower(value) for key, value in (kwargs or {}).items()}
        made = [result for result in (results if isinstance(results, tuple) else (results,)) if result is not None]
        writes = [buffer.name for buffer in (*made, *written)]
        self.nodes.append(
            ExternNode(function, args, kwargs, results, list(reads), writes, ordered, self.origins, speaks, accepted)
        )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """What is in the memory of a tensor that fills it."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def _common_cuts(operands: Sequence[Tensor], sizes: Sequence[int]) -> Cuts | None:
    """The pieces of what is made element by element of the operands, where one of these has costly pieces and none has
    others."""
    found: set[Cuts] = set()
    for operand in operands:
        cuts = operand.content.cuts
        if operand.content.buffer is None and cuts is not None and cuts.costly:
            if not operand.is_root or operand.sizes != sizes:
                return None
            found.add(cuts)
    return found.pop() if len(found) == 1 else None
