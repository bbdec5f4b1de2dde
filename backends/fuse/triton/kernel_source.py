"""A kernel as Triton source."""
from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Kernel, text_of
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize, sizes_written
from framejit.backends.fuse.triton.attention_source import AttentionBody
from framejit.backends.fuse.triton.expressions import POINTERS
from framejit.backends.fuse.triton.kernel_body import Body
from framejit.backends.fuse.triton.lines import Lines
from framejit.backends.fuse.triton.scalar_arguments import ScalarArguments
from framejit.backends.fuse.triton.tiles.attention_blocks import AttentionTile
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU, GpuLimits
from framejit.backends.fuse.triton.tiles.blocks import AnyTile, candidates
from framejit.backends.fuse.triton.tiles.side_by_side import SideBySide, dispatch
from framejit.backends.fuse.triton.tiles.tile import Tile, spares_multiprocessors
from framejit.late_dataclass import dataclass

PREFIX: Final = "framejit_"
"""What the names of all kernels begin with in profilers; behind it comes what they compute, without the number, so that
equal kernels have equal source."""

HEAD = """\
import triton
import triton.language as tl
"""

DEVICE_FUNCTIONS = (
    "nan_max", "nan_min", "plain_max", "plain_min", "added", "multiplied", "exclusive", "either", "both",
    "first_greatest", "first_least",
    "last_greatest", "last_least", "log_added",
    "integer_floordiv", "integer_mod", "float_mod", "float_floordiv", "shift_left", "shift_right",
    "logical_shift_right", "sign_of", "float_sign",
    "philox_word", "philox_words",
    "exact_sigmoid", "quick_sigmoid", "quick_one_plus_tanh", "quick_one_plus_erf",
)
"""Functions of device.py that the body of a kernel may name."""


@dataclass(frozen=True)
class TritonSource:
    """A kernel as source, and how to launch it. Equal `key`s mean equal machine code."""

    name: str
    """The IR kernel's name."""
    code: str
    """A module that defines the function."""
    function: str
    """What the kernel's function is called."""
    remarks: str
    """Comments for people: where it comes from, what it computes."""
    buffers: tuple[str, ...]
    """The names of the buffers whose addresses are the first arguments, in order."""
    signature: tuple[tuple[str, str, bool], ...]
    """For each argument its name, Triton's type of it, and whether it is a multiple: an address of 16, a size of
    `multiples.ALIGNED`."""
    programs: int
    """An SymbolicSize where that is not known before sizes are."""
    warps: int
    waits: bool = False
    """Whether it waits for the kernel launched before it, so that it may begin before that has ended."""
    scalars: tuple[SymbolicSize | int, ...] = ()
    """The arguments after these: sizes that are not known, and numbers of draws."""

    @property
    def grid(self) -> tuple[Any, int, int]:
        return self.programs, 1, 1

    @property
    def key(self) -> str:
        """A hash over what the machine code depends on, the target and Triton itself apart."""
        return hashlib.sha256(repr((self.code, self.signature, self.warps)).encode()).hexdigest()

    @property
    def text(self) -> str:
        """The source as people read it."""
        return f"{self.remarks}{self.code}"


def triton_source(
    kernel: Kernel, limits: GpuLimits = WITHOUT_A_GPU, tile: AnyTile | None = None
) -> TritonSource:
    """The source of a kernel for GPUs of these limits, with a tile of `candidates(kernel, limits)`, by default the
    first."""
    tile = next(candidates(kernel, limits)) if tile is None else tile
    pointers = _pointers(kernel)
    scalars = ScalarArguments(tile.wide)
    function = PREFIX + re.sub(r"_\d+$", "", kernel.name)
    parts = ""
    waits = (kernel.members[0] if kernel.members else kernel).steady is not None
    spares = spares_multiprocessors(tile.programs)
    if isinstance(tile, AttentionTile | SideBySide):
        joined = tile.first if isinstance(tile, AttentionTile) else tile.tiles
        own = [{name: pointers[name] for name in part.kernel.buffers} for part in joined]
        for number, (part, arguments) in enumerate(zip(joined, own)):
            body = _body(part, arguments, "tl.full([], {}, tl.int32)".format, spares, "program")
            parts += f"\n\n{_function(f'{function}_{number}', ('program', *arguments.values()), body)}"
        called = [[*arguments.values()] for arguments in own]
        if isinstance(tile, AttentionTile) and isinstance(kernel, AttentionKernel):
            body = AttentionBody(kernel, tile, pointers).text(spares, function, called)
        elif isinstance(tile, SideBySide):
            body = dispatch(function, called, tile)
    else:
        with sizes_written(scalars.size):
            body = _body(tile, pointers, scalars.draw, spares)
    whole = _function(function, (*pointers.values(), *(name for name, _, _ in scalars.signature)), body)
    code = f"{_imports(parts + body)}{parts}\n\n{whole}"
    signature = tuple(
        (argument, POINTERS[kernel.buffers[name].dtype], _aligned(kernel, name)) for name, argument in pointers.items()
    )
    remarks = _remarks(kernel, tile, pointers, scalars)
    return TritonSource(
        kernel.name, code, function, remarks, tuple(pointers), (*signature, *scalars.signature), tile.programs,
        tile.warps, waits=waits, scalars=tuple(scalars.values),
    )


def _body(
    tile: Tile, pointers: dict[str, str], draw: Callable[[int], str], spares: bool, program: str = "tl.program_id(0)"
) -> str:
    lines = Lines()
    Body(tile, pointers, lines, draw, spares).write(program)
    return "\n".join(lines.texts)


def _function(name: str, arguments: Iterable[str], body: str) -> str:
    return f"@triton.jit\ndef {name}({', '.join(arguments)}):\n{body}\n"


def _imports(body: str) -> str:
    """The head of a module whose function has this body."""
    words = set(re.findall(r"\w+", body))
    head = HEAD
    modules = [name for name in ("cuda", "libdevice") if name in words]
    if modules:
        head += f"from triton.language.extra import {', '.join(modules)}\n"
    used = [name for name in DEVICE_FUNCTIONS if name in words]
    return head + (f"\nfrom framejit.backends.fuse.triton.device import {', '.join(used)}\n" if used else "")


def _pointers(kernel: Kernel) -> dict[str, str]:
    """An argument's name for each buffer."""
    reads, writes = kernel.reads, set(kernel.writes)
    names: dict[str, str] = {}
    for buffer in kernel.buffers:
        kind = "in_out" if buffer in reads and buffer in writes else "out" if buffer in writes else "in"
        names[buffer] = f"{kind}_ptr{sum(name.startswith(f'{kind}_ptr') for name in names.values())}"
    return names


def _aligned(kernel: Kernel, name: str) -> bool:
    """Memory that the plan allocates is aligned, and it checks its inputs; a constant is where it is."""
    memory = kernel.buffers[name]
    return memory.constant is None or memory.constant.data_ptr() % 16 == 0


def _remarks(kernel: Kernel, tile: AnyTile, pointers: dict[str, str], scalars: ScalarArguments) -> str:
    lines = [*kernel.origins, *text_of([kernel], {}).splitlines()[len(kernel.origins) :]]
    lines += [f"{argument} is {kernel.buffers[name]}" for name, argument in pointers.items()]
    lines += scalars.remarks
    lines.append(f"grid of {tile.programs}: {tile}")
    return "".join(f"# {line}\n" for line in lines)
