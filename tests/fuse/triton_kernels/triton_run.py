"""Scheduled graphs on CPU tensors: kernels by Triton's interpreter, which TRITON_INTERPRET has to have chosen, the rest
by ATen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from torch.utils._pytree import tree_map

from framejit.backends.fuse.loop_ir.nodes import Buffer, ComputeNode, ExternNode, Kernel, LoweredGraph
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.triton.analysis import Analysis
from framejit.backends.fuse.triton.compile import jit_function
from framejit.backends.fuse.triton.kernel_source import TritonSource, triton_source
from framejit.backends.fuse.triton.tiles.blocks import AnyTile, candidates, power_below
from framejit.backends.fuse.triton.tiles.tile import Axis, Tile
from tests.fuse.interpreter import Interpreter
from tests.fuse.operators.operator_wall import Differs

GUARD: Final = 256
"""Bytes before and behind each buffer that a kernel must leave alone."""
PATTERN: Final = 0xA5
"""The bytes of what nobody has written."""
FEWEST: Final = 2
"""The least size of a block that is meant to be one of many."""


def first_tile(kernel: Kernel) -> AnyTile:
    """What a kernel is compiled with."""
    return next(candidates(kernel))


def in_many_blocks(kernel: Kernel) -> AnyTile:
    """A tile that makes of a sample's few elements what large tensors come to: loops over the blocks of a row, and few
    programs for many blocks."""
    tile = first_tile(kernel)
    if not isinstance(tile, Tile):
        return tile
    looped = bool(tile.reduction) and tile.reduction[0].size >= 2 * FEWEST
    axes = [
        replace(axis, block=_part_of(axis))
        if (axis is tile.reduction[0] and looped if axis.reduction else axis.block > 1 or not tile.parts)
        else axis
        for axis in tile.axes
    ]
    online = looped and Analysis(tile.kernel).passes > 1
    return replace(
        tile, axes=tuple(axes), looped=looped, online=online, resident=2, stages=2, apart=False,
        parts=min(tile.parts, FEWEST),
    )


def _part_of(axis: Axis) -> int:
    return max(FEWEST, power_below(axis.size // 3)) if axis.size >= 2 * FEWEST else axis.block


class TritonRun(Interpreter):
    """Runs the steps of a scheduled graph: kernels by Triton's interpreter, what is left to ATen on CPU tensors.

    `tile` says which tile a kernel is to have, `on_launch` is told of each that is run. Raises Differs where a kernel
    writes what it must not.
    """

    def __init__(
        self, graph: LoweredGraph, tile: Callable[[Kernel], AnyTile],
        on_launch: Callable[[TritonSource], None],
    ) -> None:
        super().__init__(graph)
        self.tile, self.on_launch = tile, on_launch

    def tensor(self, buffer: Buffer) -> torch.Tensor:
        fresh = buffer.name not in self.memory and buffer.memory == buffer.name
        tensor = super().tensor(buffer)
        if fresh:
            tensor.as_strided((buffer.extent,), (1,)).view(torch.uint8).fill_(PATTERN)
        return tensor

    def _extern(self, node: ExternNode) -> None:
        def function(*args: Any, **kwargs: Any) -> Any:
            result = node.function(*args, **kwargs)
            if not isinstance(node.results, tuple):
                return _fitting(result, node.results)
            return tuple(map(_fitting, result, node.results))

        super()._extern(
            replace(node, function=function, args=moved(node.args, "cpu"), kwargs=moved(node.kwargs, "cpu"))
        )

    def source(self, kernel: Kernel) -> TritonSource:
        """What is run for a kernel."""
        return triton_source(kernel, tile=self.tile(kernel))

    def _loops(self, node: ComputeNode) -> None:
        assert isinstance(node, Kernel) and target_of(node.device).language == "triton", f"a kernel for {node.device}"
        if node.is_empty:
            return
        source = self.source(node)
        self.on_launch(source)
        tensors = {name: self.tensor(buffer) for name, buffer in node.buffers.items()}
        memories = {_place(tensor): _Guarded(tensor) for tensor in tensors.values()}
        with jit_function(source) as function:
            function[source.grid](*(memories[_place(tensors[name])].inside for name in source.buffers), *source.scalars)
        written = {_place(tensors[name]) for name in node.writes}
        for place, memory in memories.items():
            memory.check_and_copy(place in written)


def _place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What tells the memory of a tensor from others: buffers that are versions or parts of one have the same tensor."""
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _fitting(result: Any, buffer: Buffer | None) -> Any:
    """What ATen gives on a CPU, as a GPU gives it."""
    return result if buffer is None else laid_out(result, buffer.strides, buffer.dtype)


class _Guarded:
    """A copy of memory, of which a kernel may write what it is for and nothing around it."""

    def __init__(self, tensor: torch.Tensor) -> None:
        extent = (
            1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
        )
        self.memory = tensor.data.as_strided((extent,), (1,))  # `data` counts its own versions: a kernel counts none
        size = extent * tensor.itemsize
        self.all = torch.full((size + 2 * GUARD,), PATTERN, dtype=torch.uint8)
        self.inside = self.all[GUARD : GUARD + size].view(tensor.dtype)
        self.inside.copy_(self.memory)

    def check_and_copy(self, written: bool) -> None:
        """Give the memory what the kernel has written. Raises Differs if it has written elsewhere."""
        around = torch.cat([self.all[:GUARD], self.all[-GUARD:]])
        if not (around == PATTERN).all():
            raise Differs("a kernel writes outside of its buffers")
        if written:
            self.memory.copy_(self.inside)
        elif not torch.equal(self.inside.view(torch.uint8), self.memory.view(torch.uint8)):
            raise Differs("a kernel writes into a buffer that it is only to read")


def laid_out(tensor: torch.Tensor, strides: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The tensor, or a copy if it is to have other strides or another dtype."""
    if (tensor.stride(), tensor.dtype) == (strides, dtype):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=dtype).copy_(tensor)


def moved(arguments: Any, target: str) -> Any:
    """Arguments with another device in place of that of tensors to be made."""

    def other(value: Any) -> Any:
        return (
            torch.device(target)
            if isinstance(value, torch.device) or isinstance(value, str) and value in ("cpu", "cuda")
            else value
        )

    return tree_map(other, arguments)
