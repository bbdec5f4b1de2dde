"""The loop IR: buffers, nodes that fill them, and the kernels that nodes are fused into.

Lowering gives a list of nodes in program order; the scheduler fuses compute nodes into kernels and leaves the rest in
place.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any, ClassVar, Final

import torch

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.late_dataclass import dataclass

READABLE_DEPTH: Final = 6  # operations within operations that a person can follow on one line


@dataclass(eq=False)
class Buffer:
    """A tensor in memory. Element `i` of an access lies `i` elements after the address `data_ptr()`."""

    name: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    input: int | None = None
    """Which input of the graph it is, or None for what the plan allocates."""
    memory: str = ""
    """The name of the buffer whose memory this is: its own, or, after something has been written into a buffer in
    place, the first one's."""
    constant: torch.Tensor | None = None
    """A tensor that is known now, such as an attribute of the graph module."""
    parts: tuple[str, ...] = ()
    """The buffers that this one is joined of, in the order in which they lie along one dimension. Their memory is this
    one's, and nothing else writes it."""
    offset: int = 0
    """Of a part of another buffer: how many elements after the address its first element lies. Its strides are those of
    the whole."""
    whole: str = ""
    """Of a part of another buffer: that buffer's name."""

    def __post_init__(self) -> None:
        self.memory = self.memory or self.name

    @property
    def extent(self) -> int:
        """The number of elements from the first to the last one in memory."""
        if 0 in self.sizes:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.sizes, self.strides))

    def __str__(self) -> str:
        return (
            f"{self.name}: {str(self.dtype).removeprefix('torch.')}{list(self.sizes)} strides {list(self.strides)} on "
            f"{self.device}"
        )


@dataclass
class Layout:
    """A strided view of a buffer: sizes, strides and storage offset in elements, counted from the buffer's first
    element."""

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def is_whole(self) -> bool:
        """Whether it is the buffer itself."""
        return not self.offset and self.sizes == self.buffer.sizes and self.strides == self.buffer.strides


@dataclass(frozen=True)
class Store:
    """`buffer[index] = value`, for each turn of the parallel loops, or of these and the reduction loops where
    `in_reduction` is set."""

    buffer: str
    index: Index
    value: Expr
    in_reduction: bool = False


@dataclass(eq=False)
class ComputeNode:
    """A loop nest: for all `parallel` loop variables, reductions over the `reduction` ones, and what is stored.

    A pointwise node has no reduction loops. In a node with reduction loops, a value may hold `reduce` expressions,
    which are over all reduction loops; what is outside of them depends on reduction variables only if the store is
    `in_reduction`. A `scan` has a value for each turn of the reduction loops, so that it stands in a store that is
    `in_reduction`, or below a `reduce`. The order of the reduction loops is part of what a node says where it holds
    something ordered.

    A part of a buffer is written by one store, which writes each of its elements, in one turn each.
    """

    parallel: tuple[Var, ...]
    reduction: tuple[Var, ...]
    stores: list[Store]
    device: torch.device
    origins: tuple[str, ...] = ()
    """Source lines of the user's program that it comes from."""

    @property
    def reads(self) -> dict[str, list[Index]]:
        """For each buffer that is read, the indices of its loads."""
        found: dict[str, list[Index]] = {}
        seen: set[Expr] = set()
        for store in self.stores:
            for node in (store.value, *(atom.value for atom in store.index.indirects)):
                for load in node.loads():
                    if load not in seen:
                        seen.add(load)
                        found.setdefault(load.attr[0], []).append(load.attr[1])
        return found

    @property
    def writes(self) -> list[str]:
        """The buffers that are written."""
        return [store.buffer for store in self.stores]

    @property
    def places(self) -> list[tuple[str, Index]]:
        """The buffers that are written, each with where."""
        return [(store.buffer, store.index) for store in self.stores]


@dataclass(eq=False)
class ExternNode:
    """A call of an operation that ATen carries out. Tensors in `args` and `kwargs` are Layouts, one level deep in lists
    or tuples."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: Any
    """A Buffer for a tensor, None for a result that nobody needs, or a tuple of these where the operation returns
    several."""
    reads: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    """Buffers that come to be by it: its results, and new versions of those it writes into."""
    ordered: bool = False
    """Whether it must not change places with other ordered nodes, as random numbers must not."""
    origins: tuple[str, ...] = ()
    speaks: bool = False
    """Whether it may raise for what is in a tensor, or warn."""
    accepted: Callable[[], bool] | None = None
    """Tells whether ATen surely takes such arguments; asked before it is left out because nobody needs its results."""


@dataclass(frozen=True)
class AttentionParts:
    """What parts of the keys have to say until they are put together. Buffers in float32, each (batch, heads, 1,
    parts), and `sums` with the elements of a value besides: the greatest score of a part, the sum of
    `exp(score - greatest)`, and the sum of the values with these weights."""

    greatest: Buffer
    totals: Buffer
    sums: Buffer
    arrived: Buffer | None
    """For each head of the keys, of each batch, how many parts are done: int32, 0 before and after. None where loops
    behind put them together."""

    @property
    def filled(self) -> tuple[Buffer, ...]:
        return self.greatest, self.totals, self.sums


@dataclass(eq=False)
class SplitAttention:
    """Attention of one query of each head, with its keys in parts. The program that is done last puts them together,
    or loops behind it do.

    A code generator writes it as a whole: the sums are over different loops.
    """

    query: Layout
    """(batch, heads, 1, elements)."""
    key: Layout
    """(batch, heads of the cache, keys, elements): each of its heads is for as many neighbouring ones of the query."""
    value: Layout
    mask: Layout | None
    """(batch, heads, 1, keys), steps of 0 where it repeats: booleans, or numbers that are added to scores."""
    scale: float
    keys_a_part: int
    between: AttentionParts | None
    """None where there is one part."""
    result: Layout | None
    """(batch, heads, 1, elements of a value); None where loops behind give it."""
    device: torch.device
    origins: tuple[str, ...] = ()

    @property
    def layouts(self) -> list[Layout]:
        """What it reads."""
        return [each for each in (self.query, self.key, self.value, self.mask) if each is not None]

    @property
    def reads(self) -> dict[str, list[Index]]:
        """The buffers that it reads; at which places, layouts say."""
        names = [layout.buffer.name for layout in self.layouts]
        if self.between is not None and self.between.arrived is not None:
            names.append(self.between.arrived.name)
        return {name: [] for name in names}

    @property
    def filled(self) -> list[Buffer]:
        """What it writes, but for the count of parts, which it leaves as it was."""
        between = () if self.between is None else self.between.filled
        return [*between, *(() if self.result is None else (self.result.buffer,))]

    @property
    def writes(self) -> list[str]:
        return [buffer.name for buffer in self.filled]

    @property
    def parts(self) -> int:
        return 1 if self.between is None else self.between.sums.sizes[3]

    @property
    def group(self) -> int:
        """How many heads of the query have one head of keys."""
        return self.query.sizes[1] // self.key.sizes[1]

    def __str__(self) -> str:
        given = ", ".join(f"{layout.buffer.name}{list(layout.sizes)}" for layout in self.layouts)
        return f"attention of {given} by parts of {self.keys_a_part} keys: {', '.join(self.writes)}"


@dataclass(eq=False)
class Convolution:
    """A convolution of images in float32 that lie in channels-last memory, as its result does; or a linear layer,
    which is one of an image as wide as one pixel, whose rows are the layer's. The weight was laid out for it
    (`graph/direct_convolution.py`).

    A code generator writes it as a whole: where an image ends, which of its loops have turns depends on the others.
    """

    image: Buffer
    image_sizes: tuple[int, int, int, int]
    """(images, channels, height, width)."""
    weight: Buffer
    """(blocks of output channels, height, width, input channels, channels of a block)."""
    bias: Buffer | None
    result: Buffer
    result_sizes: tuple[int, int, int, int]
    """(images, output channels, height, width)."""
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    device: torch.device
    origins: tuple[str, ...] = ()
    kind: str = "convolution"
    """What users call it: `convolution` or `linear`."""

    @property
    def operands(self) -> tuple[Buffer | None, ...]:
        """What it is computed from."""
        return self.image, self.weight, self.bias

    @property
    def reads(self) -> dict[str, list[Index]]:
        """The buffers that it reads."""
        return {buffer.name: [] for buffer in self.operands if buffer is not None}

    @property
    def writes(self) -> list[str]:
        return [self.result.name]

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel is of one input channel."""
        return self.weight.sizes[3] == 1 < self.image_sizes[1]

    @property
    def products(self) -> int:
        """How many products each element of the result is the sum of."""
        return math.prod(self.weight.sizes[1:4])

    @property
    def told(self) -> tuple[Any, ...]:
        """All that it is but for names."""
        sizes = self.image_sizes, self.weight.sizes, self.result_sizes
        return *sizes, self.stride, self.padding, self.dilation, self.bias is not None

    def __str__(self) -> str:
        kind = "depthwise convolution" if self.is_depthwise else self.kind
        given = ", ".join(f"{buffer.name}{list(buffer.sizes)}" for buffer in (self.image, self.weight))
        return f"{kind} of {given}{f' with {self.bias.name}' if self.bias is not None else ''}: {self.result.name}"


@dataclass(eq=False)
class SmallProduct:
    """A product of two matrices in float32, and a bias of so many columns: one whose call would take a library longer
    than the product. A code generator writes it once for all sizes, which kernels are given."""

    left: Layout
    """(rows, inner)."""
    right: Layout
    """(inner, columns)."""
    bias: Buffer | None
    """Of as many columns as the result."""
    result: Buffer
    """Of so many rows; of `columns` or, if these are fewer, `NARROW` columns. One row follows on the other."""
    device: torch.device
    origins: tuple[str, ...] = ()
    kind: ClassVar[str] = "linear"
    """What users call it."""
    NARROW: ClassVar[int] = 8

    @property
    def reads(self) -> dict[str, list[Index]]:
        """The buffers that it reads."""
        return {buffer.name: [] for buffer in self.operands if buffer is not None}

    @property
    def operands(self) -> tuple[Buffer | None, ...]:
        """What it is computed from."""
        return self.left.buffer, self.right.buffer, self.bias

    @property
    def writes(self) -> list[str]:
        return [self.result.name]

    @property
    def numbers(self) -> tuple[int, ...]:
        """What a kernel is given: rows, inner, columns, those of the result, and of left and right where the first
        element lies and how far it is from one row and one column to the next."""
        (rows, inner), columns = self.left.sizes, self.right.sizes[1]
        places = [(each.offset, *each.strides) for each in (self.left, self.right)]
        return rows, inner, columns, self.result.sizes[-1], *places[0], *places[1]

    @property
    def told(self) -> tuple[Any, ...]:
        """All that it is but for names."""
        return self.kind, *self.numbers, self.bias is not None

    def __str__(self) -> str:
        given = ", ".join(f"{each.buffer.name}{list(each.sizes)}" for each in (self.left, self.right))
        return f"product of {given}{f' with {self.bias.name}' if self.bias is not None else ''}: {self.result.name}"


Node = ComputeNode | ExternNode | SplitAttention | Convolution | SmallProduct


@dataclass(eq=False)
class Kernel(ComputeNode):
    """A compute node as it is compiled: after fusion, loops merged where memory is contiguous, ready for a code
    generator.

    `parallel` loops may run in any order, and are listed outermost first. Loads see memory as it was before the kernel;
    if a kernel both loads from and stores to one memory (`Buffer.memory`), every such load is at the very index that
    the same turn of the loops stores to.
    """

    name: str = ""
    buffers: dict[str, Buffer] = field(default_factory=dict)
    """What it reads and writes, by name; the order is that of the kernel's pointers, and buffers that share memory come
    as one pointer each."""
    members: tuple[Kernel, ...] = ()
    """Where it is a launch that several kernels share: those. None waits for another; its stores and buffers are all of
    theirs, its loops those of the first."""
    steady: frozenset[str] | None = None
    """Where launches overlap (`Target.overlaps_launches`): the buffers that it may read before the launch before it has
    ended, since nothing in the graph writes to their memory. None where a launch waits for its turn."""

    @cached_property
    def reads(self) -> dict[str, list[Index]]:
        """As of any loop nest; a kernel's stores stay what they are."""
        return super().reads

    @property
    def said(self) -> list[Store]:
        """The stores whose expressions say what it computes."""
        return self.stores

    @property
    def parallel_size(self) -> int:
        return math.prod(var.size for var in self.parallel)

    @property
    def reduction_size(self) -> int:
        return math.prod(var.size for var in self.reduction)

    @property
    def is_empty(self) -> bool:
        """Whether no loop that stores has a turn: then there is nothing to run, but the (empty) buffers must come to
        be."""
        return not self.parallel_size or (not self.reduction_size and all(store.in_reduction for store in self.stores))


@dataclass(eq=False)
class AttentionKernel(Kernel):
    """A `SplitAttention` as it is compiled. It has no loops that others know of."""

    attention: SplitAttention = field(kw_only=True)
    first: tuple[Kernel, ...] = ()
    """What its programs do before, each for the heads that it looks at: see `schedule/into_attention.py`."""
    rows: Mapping[str, Expr] = field(default_factory=dict)
    """For buffers of keys and values, the number of the one row, a load, that anything in the graph writes."""

    @property
    def reads(self) -> dict[str, list[Index]]:
        stored = {name for kernel in self.first for name in kernel.writes}
        parts: list[dict[str, list[Index]]] = [*(kernel.reads for kernel in self.first), self.attention.reads]
        parts.append({row.attr[0]: [row.attr[1]] for row in self.rows.values()})
        return {name: places for part in parts for name, places in part.items() if name not in stored}

    @property
    def writes(self) -> list[str]:
        return [*(name for kernel in self.first for name in kernel.writes), *self.attention.writes]


@dataclass(eq=False)
class TileKernel(Kernel):
    """A `Convolution` or `SmallProduct` as it is compiled. It has no loops that others know of."""

    tile: Convolution | SmallProduct = field(kw_only=True)
    epilogue: Store | None = None
    """What is stored in place of its result, which loads of that name stand for: element by element, all at the same
    place."""

    @property
    def reads(self) -> dict[str, list[Index]]:
        loads = self.epilogue.value.loads() if self.epilogue is not None else ()
        return {**self.tile.reads, **{load.attr[0]: [] for load in loads if load.attr[0] in self.buffers}}

    @property
    def writes(self) -> list[str]:
        return [self.epilogue.buffer] if self.epilogue is not None else self.tile.writes

    @property
    def said(self) -> list[Store]:
        return [] if self.epilogue is None else [self.epilogue]


@dataclass
class LoweredGraph:
    """A graph after lowering: its loop nests and calls of ATen in program order, its buffers, and its outputs."""

    buffers: dict[str, Buffer]
    nodes: list[Node]
    outputs: list[Layout | Any]
    """For each output of the graph a layout, or a constant such as None."""
    n_inputs: int
    own_inputs: frozenset[int] | None = None
    """See `Graph.own_inputs`."""
    plain: bool = False
    """Whether gradients and autocast must be switched off around it, which they are not where it is called."""


def text_of(nodes: Iterable[Node], buffers: dict[str, Buffer]) -> str:
    """The nodes as text, for people."""
    lines: list[str] = []
    for node in nodes:
        lines += [f"# {origin}" for origin in node.origins]
        if isinstance(node, ExternNode):
            lines.append(
                f"extern {getattr(node.function, '__name__', node.function)} reads {', '.join(node.reads)} writes "
                f"{', '.join(node.writes)}"
            )
            continue
        if isinstance(node, SplitAttention | AttentionKernel):
            name = f"kernel {node.name}: " if isinstance(node, Kernel) else ""
            lines.append(f"{name}{node.attention if isinstance(node, Kernel) else node}")
            for first in node.first if isinstance(node, AttentionKernel) else ():
                lines += ["before, for the heads of each program:", *text_of([first], {}).splitlines()]
            continue
        if isinstance(node, Convolution | SmallProduct | TileKernel):
            name = f"kernel {node.name}: " if isinstance(node, Kernel) else ""
            lines.append(f"{name}{node.tile if isinstance(node, Kernel) else node}")
            lines += _store_lines(node.said) if isinstance(node, Kernel) else []
            continue
        if isinstance(node, Kernel) and node.members:
            lines += ["one launch of", *text_of(node.members, {}).splitlines()]
            continue
        name = f"kernel {node.name} " if isinstance(node, Kernel) else ""
        parallel = ", ".join(f"{var}<{var.size}" for var in node.parallel)
        reduction = ", ".join(f"{var}<{var.size}" for var in node.reduction)
        lines.append(f"{name}for {parallel or 'one element'}{f', reducing {reduction}' if reduction else ''}:")
        lines += _store_lines(node.stores)
    return "\n".join([*(f"{buffer}" for buffer in buffers.values()), *lines])


def _store_lines(stores: Sequence[Store]) -> list[str]:
    """What is stored; a value that is used more than once, or lies deep, gets a line and a name of its own."""
    uses = Counter(operand for value in _values(stores) for operand in value.operands())
    depth: dict[Expr, int] = {}
    text: dict[Expr, str] = {}
    lines: list[str] = []
    for value in _values(stores):
        depth[value] = 1 + max((depth[operand] for operand in value.operands()), default=0)
        text[value] = value.text([text[operand] for operand in value.args])
        if value.args and (uses[value] > 1 or depth[value] > READABLE_DEPTH):
            name = f"v{len(lines)}"
            lines.append(f"    {name} = {text[value]}")
            text[value], depth[value] = name, 0
    for store in stores:
        lines.append(
            f"    {store.buffer}[{store.index}] = {text[store.value]}"
            f"{'  (each turn of the reduction)' if store.in_reduction else ''}"
        )
    return lines


def _values(stores: Sequence[Store]) -> Iterable[Expr]:
    """Each expression of stores once, operands first."""
    return dict.fromkeys(value for store in stores for value in store.value.walk())
