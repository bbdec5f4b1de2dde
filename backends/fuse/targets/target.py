"""A target: all that the stages ask about a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

import torch

from framejit.backends.fuse.not_fusable import NotFusable

if TYPE_CHECKING:
    from framejit.backends.fuse.account.compiled_graph import KernelSource
    from framejit.backends.fuse.launches.recorder import Recorder
    from framejit.backends.fuse.loop_ir.expr import Expr
    from framejit.backends.fuse.loop_ir.nodes import Kernel

Described = dict[str, Any]
"""A compiled kernel as plain data."""
NO_ROWS: Final[Mapping[str, int]] = {}


class KernelLaunch(Protocol):
    """A compiled kernel. Called with the slots of its `buffers`, it gives the step of a plan that runs it."""

    @property
    def device(self) -> torch.device: ...

    @property
    def origins(self) -> tuple[str, ...]:
        """The user's source lines that it carries out."""

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of the buffers whose addresses it takes, in order."""

    @property
    def source(self) -> KernelSource: ...

    @property
    def machine_code(self) -> object:
        """An object that has to be kept alive as long as the kernel may run."""

    @property
    def described(self) -> Described:
        """All that `Target.load` needs."""

    def __call__(self, slots: Sequence[int]) -> tuple[Any, ...]: ...


class Target:
    """A device that kernels may be for. This class itself is for those that no code generator is for: all is left to
    ATen there."""

    language: ClassVar[str] = ""
    """What kernels are written in; empty where there is no code generator."""
    suffix: ClassVar[str] = "txt"
    """The suffix of files with the source of kernels."""
    described: ClassVar[Mapping[str, Any]] = {}
    """The names of what describes a compiled kernel, each with its type or types. `buffers` is among them."""

    renames: ClassVar[bool] = False
    """Whether `compile` makes use of it that a kernel is another one under other names (`RenamedKernel`). Elsewhere
    such kernels come as any others."""
    is_asynchronous: ClassVar[bool] = False
    """Whether calls return before their work is done, so that events in its stream tell how long that took."""
    is_aligned: ClassVar[bool] = False
    """Whether kernels rely on addresses that are multiples of 16: a plan then checks its inputs'."""
    allocation: ClassVar[int] = 1
    """Bytes that the size of each piece of memory from torch's allocator is a multiple of."""

    prefers_layouts: ClassVar[bool] = False
    """Whether ATen's convolutions, products and attention are quicker there with memory laid out otherwise than eager
    lays it out."""
    packs_weights: ClassVar[bool] = False
    """Whether ATen has convolutions and products there that take frozen weights in a layout of the library's own."""
    adds_bias_apart: ClassVar[bool] = False
    """Whether ATen's convolutions add their bias in a kernel of its own."""
    shifts_norms: ClassVar[bool] = False
    """Whether ATen's batch norms are a multiplication and an addition for each element, with the mean in what is
    added, for all dtypes."""
    gathers: ClassVar[bool] = False
    """Whether kernels may read at computed places: not where ATen raises for an index that is out of range."""
    pools: ClassVar[bool] = False
    """Whether kernels of ours do max pooling: where ATen's write positions, too, that nobody asked for."""
    makes_random_numbers: ClassVar[bool] = False
    """Whether kernels make random numbers themselves: others than eager draws."""
    hides_work: ClassVar[bool] = False
    """Whether what a mask hides is not read, and what is computed in vain costs nothing beside the reading."""
    sums_in_double: ClassVar[bool] = False
    """Whether ATen adds float32 up in float64, and accumulators of ours may as well."""

    outer_products: ClassVar[bool] = False
    """Whether matrix products whose sums are of one term are kernels of ours, and sums begin at 0 there."""
    norm_rows: ClassVar[int] = 0
    """For so many rows of a product its programs had better do the norm before it, each once more, than wait for a
    kernel that does it."""
    shares_launches: ClassVar[bool] = False
    """Whether several kernels may be one launch, each with programs of its own."""
    few_rows: ClassVar[int] = 0
    """Below so many results, the device is not kept busy by giving each to one worker."""
    long_row: ClassVar[int] = 1 << 16
    """From how many elements on a row is split into parts then."""
    row_parts: ClassVar[int] = 1
    """Into how many."""
    few_elements: ClassVar[int] = 0
    """Under so many elements a kernel more costs more than computing."""
    scan_lanes: ClassVar[int] = 0
    """With fewer rows than this, ATen is as quick at a scan that takes many instructions an element."""
    longest_scan: ClassVar[Mapping[str, int]] = NO_ROWS
    """For kinds of scans the longest single row of which ATen is not quicker."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.answers: dict[Any, bool] = {}
        """What was found out about what the generator can do, by whoever asked."""

    @property
    def is_there(self) -> bool:
        """Whether tensors can be made on it; code for a device that this machine lacks is only looked at."""
        return False

    @property
    def identity(self) -> str | None:
        """Tells apart devices for which other code or other plans would be made; None if that is not known. May raise
        what torch raises without a driver."""
        return None

    @property
    def overlaps_launches(self) -> bool:
        """Whether a kernel may begin before the one launched before it has ended, and then waits for that."""
        return False

    @property
    def recorder(self) -> Recorder | None:
        """The object that captures launches on this device, to launch them at once; None where each is launched on its
        own."""
        return None

    @property
    def parallel_turns(self) -> int:
        """Turns of parallel loops that keep the device busy."""
        return 1

    def parts(self, results: int, length: int, crosses: Callable[[], bool]) -> int:
        """Into how many parts each row is split that is reduced, at least.

        results: How many rows there are.
        length: The elements of a row.
        crosses: Tells whether neighbours in memory belong to different rows.
        """
        return self.row_parts if length > self.long_row and results < self.few_rows else 1

    def multiplies(self, rows: int, columns: int, dtype: torch.dtype, joint: bool) -> bool:
        """Whether loops of ours, which read one operand of a matrix product once, are the quicker ones.

        rows, columns: The result's; there are no more rows than columns.
        joint: Whether there is another product of the same rows with as many columns.
        """
        return False

    def attends(self, queries: int, keys: int, dtype: torch.dtype) -> bool:
        """Whether loops of ours are the quicker ones for attention of so many queries of a head to so many keys."""
        return False

    def channel_block(self, channels: int) -> int:
        """How many output channels kernels of ours do side by side in convolutions in float32 with so many; 0 where
        ATen's are quicker."""
        return 0

    def keys_a_part(self, heads: int, keys: int, elements: int) -> int:
        """How many keys one program looks at where attention of one query is split, a power of two.

        heads: Heads of all caches of a batch.
        keys: How many each has.
        elements: Those of a key or a value.
        """
        return keys

    def joins_parts(self, heads: int, parts: int, elements: int) -> bool:
        """Whether the program that is done last with so many heads puts their parts of the keys together, rather than
        loops behind; `elements` are those of a value."""
        return False

    def supports(self, operation: str, dtype: torch.dtype, divisor: Expr | None = None) -> bool:
        """Whether the generator can do an operation on operands of a dtype; reductions are `reduce_` and the kind,
        scans `scan_` and the kind.

        `divisor` may show of a division that it is never one by zero.
        """
        return False

    def expect(self) -> None:
        """Get ready what compiling takes long to get ready, as early as it is known that there will be kernels."""

    def compile(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        """Machine code for kernels. Raises NotFusable for a device that no code generator is for, KernelFailed where
        one fails."""
        raise NotFusable(f"there is no code generator for {self.device}")

    def begun(self, kernels: Sequence[Kernel]) -> Callable[[], list[KernelLaunch]]:
        """What gives `compile`. Where other threads can do a part of it, they are at it meanwhile."""
        return lambda: self.compile(kernels)

    def autotuned(self, kernels: Sequence[Kernel]) -> list[KernelLaunch]:
        """As `compile`; where there are several ways to write a kernel, the one that measures quickest."""
        return self.compile(kernels)

    def free_memory(self) -> int:
        """Bytes of the device's memory that may be taken for a while."""
        return 0

    def seconds(self, run: Callable[[], Any], calls: int) -> float:
        """How long so many calls of `run` keep the device busy."""
        start = perf_counter()
        for _ in range(calls):
            run()
        return perf_counter() - start

    def load(self, kernels: Sequence[tuple[tuple[str, ...], Described]]) -> list[KernelLaunch]:
        """Kernels that were compiled before, of each its origins and what `KernelLaunch.described` gave. Raises
        whatever data that is none leads to."""
        raise NotFusable(f"there is no code generator for {self.device}")


class WithoutMemory(Target):
    """Tensors of the device `meta`: there is nothing to compute, and nothing that a plan would depend on."""

    @property
    def identity(self) -> str:
        return ""
