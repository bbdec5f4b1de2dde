"""Tensors during lowering: an index function until something needs them in memory, then a view of a buffer.

A `LazyBuffer` is what one storage holds between two writes to it, its content. A `Tensor` is a strided view of a
content, with the very sizes, strides and offset that eager gives it. So a view of what is in memory is read by its
strides, whatever operation made it, and a view of what is not is read by turning its place in the storage back into
indices of the content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final
from weakref import ref

import torch

from framejit.backends.fuse.loop_ir.expr import COMPUTE, Expr, cast, load, rounded
from framejit.backends.fuse.loop_ir.index import Index, Quotient, Remainder, Var, fresh_var, strided
from framejit.backends.fuse.loop_ir.nodes import Buffer
from framejit.backends.fuse.sizes.symbolic_size import hint
from framejit.late_dataclass import dataclass

Reader = Callable[[Sequence[Index]], Expr]
"""From indices, one a dimension, to the element there in the dtype that it is computed in."""

CHEAP_OPS: Final = 2
CHEAP_LOADS: Final = 2
HIDDEN_OPS: Final = 16  # which a GPU does while it waits for memory
REPEATED: Final = 4  # times that an element is broadcast, from which on what is slow is computed once
MOST_OPS: Final = 80  # beyond, Python's recursion and the size of kernels become the limit
MOST_LOADS: Final = 72  # so that a sum of 64 tensors is one kernel


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """In which dtype values of a dtype are computed."""
    return COMPUTE.get(dtype, dtype)


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def by_stride(sizes: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The dimensions of more than one element, the one with the longest step first."""
    return sorted((dim for dim, size in enumerate(sizes) if size != 1), key=lambda dim: -strides[dim])


def is_dense(sizes: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether the elements fill their range of memory without gaps or overlaps."""
    step = 1
    for dim in reversed(by_stride(sizes, strides)):
        if strides[dim] != step:
            return False
        step *= sizes[dim]
    return True


_numbers = count()


@dataclass(frozen=True)
class Cuts:
    """Where a content falls into pieces that are computed in different ways: `lengths`, one after the other along
    dimension `dim`."""

    dim: int
    lengths: tuple[int, ...]
    costly: bool
    """Whether a piece costs so much that what is made of the whole, element by element, had better be made piece by
    piece too."""


class LazyBuffer:
    """The elements of a storage while lowering, computed or not: those of its first (root) tensor, as a buffer or as an
    index function.

    `sizes`, `strides`: the root's. `parents`: the contents that the index function reads. `ops`, `loads`: how much the
    function does for an element; `read`: the bytes of memory that all elements read, infinite where that is not known;
    `slow`: whether it does what takes tens of instructions.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        strides: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        *,
        reader: Reader | None = None,
        buffer: Buffer | None = None,
        parents: Sequence[LazyBuffer] = (),
        ops: int = 0,
        loads: int = 0,
        read: float = math.inf,
        slow: bool = False,
        origins: tuple[str, ...] = (),
    ) -> None:
        self.sizes, self.strides, self.dtype, self.device = tuple(sizes), tuple(strides), dtype, device
        self.reader, self.buffer = reader, buffer
        self.parents, self.ops, self.loads, self.read, self.origins = tuple(parents), ops, loads, read, origins
        self.slow = slow
        self.dense = is_dense(self.sizes, self.strides)
        self.number = next(_numbers)
        self.known: Callable[[], torch.Tensor | None] | None = None
        """Gives the value, if it is the same in each call."""
        self.bound = False
        """Whether it is some fake storage's content; each has its own."""
        self.cuts: Cuts | None = None
        """The pieces, each with loops of its own, in which it is put into memory."""
        self._read_by: list[ref[LazyBuffer]] = []
        for parent in {*self.parents}:
            parent._read_by.append(ref(self))
        self.is_returned = False
        """Whether it is read again when the graph has run: by the program, or by a backward that computes anew, from
        it, what was made of it here and compares the two. So it is read as memory holds it here, too."""

    @property
    def is_cheap(self) -> bool:
        """Whether to compute it once more is no worse than to load it."""
        return self.ops <= CHEAP_OPS and self.loads <= CHEAP_LOADS

    @property
    def is_cheap_to_read(self) -> bool:
        """Whether what it is made of is no more to read than the content would be, and made into it in few
        operations."""
        return self.ops <= HIDDEN_OPS and not self.slow and self.read <= self.bytes < math.inf

    def is_repeated(self, sizes: Sequence[int]) -> bool:
        """Whether a tensor of these sizes, made element by element of it, has several elements for each of its own."""
        return self.buffer is None and hint(math.prod(sizes)) >= REPEATED * max(1, hint(math.prod(self.sizes)))

    @property
    def bytes(self) -> float:
        """The bytes it takes in memory; infinite where a size is not known."""
        count = math.prod(self.sizes)
        return count * self.dtype.itemsize if isinstance(count, int) else math.inf

    def put(self, buffer: Buffer) -> None:
        """From here on it is read from a buffer."""
        self.buffer, self.reader, self.parents, self.known = buffer, None, (), None

    def reads_memory(self, memory: str, known: dict[LazyBuffer, bool] | None = None) -> bool:
        """Whether its elements depend on what is in the memory of that name now."""
        known = {} if known is None else known
        if self not in known:
            known[self] = (
                self.buffer.memory == memory
                if self.buffer
                else any(parent.reads_memory(memory, known) for parent in self.parents)
            )
        return known[self]

    def readers(self) -> Iterator[LazyBuffer]:
        """The contents that were made of this one, or of such, and may still read it. They are not kept alive for
        that."""
        seen: set[LazyBuffer] = set()
        waiting = [self]
        while waiting:
            for reader in filter(None, (each() for each in waiting.pop()._read_by)):
                if reader.buffer is None and reader not in seen:
                    seen.add(reader)
                    waiting.append(reader)
        return iter(seen)

    def indices_at(self, place: Index) -> list[Index]:
        """The root's indices of the element that lies at a place, for a dense root."""
        indices = [Index({})] * len(self.sizes)
        rest = place
        for dim in by_stride(self.sizes, self.strides):
            step = max(self.strides[dim], 1)
            indices[dim] = rest // step % max(self.sizes[dim], 1)
        return indices


@dataclass(eq=False)
class Tensor:
    """A view of a content. `offset` is counted in elements from the content's first element."""

    content: LazyBuffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(content: LazyBuffer) -> Tensor:
        """All of a content."""
        return Tensor(content, content.sizes, content.strides, 0)

    @property
    def dtype(self) -> torch.dtype:
        return self.content.dtype

    @property
    def device(self) -> torch.device:
        return self.content.device

    @property
    def is_root(self) -> bool:
        """Whether it is all of its content, in the content's own order."""
        return not self.offset and self.sizes == self.content.sizes and self.strides == self.content.strides

    @property
    def covers_content(self) -> bool:
        """Whether it has each element of its content just once."""
        return self.is_root or (
            self.content.dense
            and not self.offset
            and is_dense(self.sizes, self.strides)
            and math.prod(self.sizes) == math.prod(self.content.sizes)
        )

    @property
    def is_readable(self) -> bool:
        """Whether `at` can tell its elements without its content being in memory."""
        return self.content.buffer is not None or self.is_root or self.content.dense

    def at(self, indices: Sequence[Index]) -> Expr:
        """The element at the indices, one a dimension, in the dtype that it is computed in."""
        element = self._element(indices)
        return rounded(element, self.dtype) if self.content.is_returned else element

    def _element(self, indices: Sequence[Index]) -> Expr:
        content = self.content
        if content.buffer is not None:
            value = load(content.buffer.name, self.place(indices), content.dtype)
            return cast(value, compute_dtype(content.dtype))
        assert content.reader is not None
        if self.is_root:
            return content.reader(indices)
        return content.reader(content.indices_at(self.place(indices)))

    def rounded_at(self, indices: Sequence[Index]) -> Expr:
        """The element as the tensor's dtype holds it, for what may jump when it changes by a little."""
        return rounded(self.at(indices), self.dtype)

    def place(self, indices: Sequence[Index]) -> Index:
        """Where the element lies, counted from the content's first."""
        return rejoin(strided(indices, self.strides, self.offset))


def broadcast(tensor: Tensor, indices: Sequence[Index]) -> list[Index]:
    """The indices of a tensor's element that stands for the element at `indices` of something it is broadcast to."""
    skipped = len(indices) - len(tensor.sizes)
    return [Index({}) if size == 1 else index for size, index in zip(tensor.sizes, indices[skipped:])]


def broadcast_sizes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The sizes that all are broadcast to; torch's own function imports sympy."""
    rank = max(map(len, shapes))
    aligned = [(*(1 for _ in range(rank - len(shape))), *shape) for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*aligned))


def rejoin(place: Index) -> Index:
    """The index with each d*(x // d) + x % d, which comes about where dimensions are merged, put together to x
    again."""
    while True:
        for atom, coefficient in place.terms.items():
            if not isinstance(atom, Remainder):
                continue
            whole = Quotient(atom.index, atom.divisor)
            if place.terms.get(whole) == coefficient * atom.divisor:
                rest = Index({a: c for a, c in place.terms.items() if a != atom and a != whole}, place.const)
                place = rest + atom.index * coefficient
                break
        else:
            return place


def loops(sizes: Sequence[int], strides: Sequence[int], prefix: str = "i") -> tuple[tuple[Var, ...], list[Index]]:
    """Loop variables over a tensor, the one with the longest step outermost, and the indices they make up."""
    variables = {dim: fresh_var(prefix, sizes[dim]) for dim in by_stride(sizes, strides)}
    return tuple(variables.values()), [
        Index.of(variables[dim]) if dim in variables else Index({}) for dim in range(len(sizes))
    ]
