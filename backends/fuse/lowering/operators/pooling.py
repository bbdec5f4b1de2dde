"""Pooling, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, const, index_value, masked, op
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, compute_dtype
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.targets.lookup import target_of
from framejit.late_dataclass import dataclass

WIDEST_WINDOW: Final = 25  # elements; each is a load of its own in the kernel


@dataclass(frozen=True)
class _Windows:
    """Where the windows of a pool lie: a pair for rows and columns each."""

    sizes: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @staticmethod
    def of(
        window: Sequence[int], stride: Sequence[int] = (), padding: Sequence[int] = (0, 0),
        dilation: Sequence[int] = (1, 1), ceil_mode: bool = False,
    ) -> _Windows:
        """From the arguments that ATen's pools have."""
        return _Windows(_pair(window), _pair(stride) if stride else _pair(window), _pair(padding), _pair(dilation))

    def fits(self, x: Tensor, result: Value) -> bool:
        """Whether kernels of ours do better than ATen's: on a GPU, where these go through memory element by element."""
        return (
            target_of(x.device).pools
            and x.dtype.is_floating_point
            and math.prod(self.sizes) <= WIDEST_WINDOW
            and bool(result.numel())
        )

    def begin(self, row: Index, column: Index) -> tuple[Index, Index]:
        """Where the window of an element of the result begins; before the first row or column where there is
        padding."""
        return row * self.strides[0] - self.padding[0], column * self.strides[1] - self.padding[1]

    def places(self, row: Index, column: Index) -> Iterator[tuple[Index, Index]]:
        """The elements of such a window, by rows."""
        top, left = self.begin(row, column)
        for i, j in product(range(self.sizes[0]), range(self.sizes[1])):
            yield top + i * self.dilation[0], left + j * self.dilation[1]

    def around(self, row: Index, column: Index) -> Iterator[tuple[Index, Index]]:
        """The windows that an element of the input may lie in, and some that it does not; some do not exist."""
        last = (row + self.padding[0]) // self.strides[0], (column + self.padding[1]) // self.strides[1]
        reach = [
            -(-(dilation * (size - 1) + 1) // stride)
            for size, stride, dilation in zip(self.sizes, self.strides, self.dilation)
        ]
        for i, j in product(range(reach[0]), range(reach[1])):
            yield last[0] - i, last[1] - j


@lowers("max_pool2d")
def _max_pool2d(b: Builder, out: Value, x: Tensor, *geometry: Any) -> Any:
    # ATen's kernel on a GPU writes positions too, eight bytes an element, that nobody asked for; on the CPU it does
    # without
    windows = _Windows.of(*geometry)
    if not windows.fits(x, out):
        return NotImplemented
    b.computed_once(x)  # each element is in several windows
    kind = compute_dtype(x.dtype)
    height, width = x.sizes[-2:]

    def greatest(indices: Sequence[Index]) -> Expr:
        *batch, row, column = indices
        best = const(-math.inf, kind)
        for y, z in windows.places(row, column):
            best = op("maximum", best, _inside(x.at([*batch, y, z]), ((y, height), (z, width)), const(-math.inf, kind)))
        return best

    return b.indexed(
        greatest, x, sizes=tuple(out.shape), dtype=x.dtype, device=x.device, ops=2 * math.prod(windows.sizes)
    )


@lowers("max_pool2d_with_indices")
def _max_pool2d_with_indices(b: Builder, out: tuple[Value, Value], x: Tensor, *geometry: Any) -> Any:
    """Positions are places in an image of `x`, of those that hold the greatest element the first one, or the last one
    that holds nan (ATen, DilatedMaxPool2d.cu)."""
    windows = _Windows.of(*geometry)
    if not windows.fits(x, out[0]) or windows.dilation != (1, 1):  # a window's first element may then be any
        return NotImplemented
    b.computed_once(x)
    kind = compute_dtype(x.dtype)
    height, width = x.sizes[-2:]

    def greatest(indices: Sequence[Index]) -> tuple[Expr, Expr]:
        *batch, row, column = indices
        top, left = (_not_below_zero(place) for place in windows.begin(row, column))
        best, found = const(-math.inf, kind), a.add(a.mul(top, width), left)
        for y, z in windows.places(row, column):
            value = _inside(x.rounded_at([*batch, y, z]), ((y, height), (z, width)), const(-math.inf, kind))
            is_next = op("bitor", a.gt(value, best), a.ne(value, value))
            best, found = a.where(is_next, value, best), a.where(is_next, index_value(y * width + z), found)
        return best, found

    sizes, ops = tuple(out[0].shape), 5 * math.prod(windows.sizes)
    return (
        b.indexed(lambda indices: greatest(indices)[0], x, sizes=sizes, dtype=x.dtype, device=x.device, ops=ops),
        b.indexed(lambda indices: greatest(indices)[1], x, sizes=sizes, dtype=torch.int64, device=x.device, ops=ops),
    )


@lowers("max_pool2d_with_indices_backward")
def _max_pool2d_with_indices_backward(
    b: Builder, out: Value, grad: Tensor, x: Tensor, *geometry_and_places: Any
) -> Any:
    *geometry, places = geometry_and_places
    windows = _Windows.of(*geometry)
    if not windows.fits(x, out) or grad.dtype != x.dtype:
        return NotImplemented
    b.computed_once(grad)
    b.computed_once(places)
    kind = compute_dtype(x.dtype)
    width = x.sizes[-1]
    rows, columns = grad.sizes[-2:]

    def flow(indices: Sequence[Index]) -> Expr:
        *batch, row, column = indices
        here, total = index_value(row * width + column), const(0.0, kind)
        for y, z in windows.around(row, column):
            at, limits = [*batch, y, z], ((y, rows), (z, columns))
            came_from_here = a.eq(_inside(places.at(at), limits, const(-1, torch.int64)), here)
            total = a.add(total, masked(came_from_here, grad.at(at), const(0.0, kind)))
        return total

    return b.indexed(
        flow, grad, places, sizes=tuple(out.shape), dtype=out.dtype, device=x.device, ops=4 * math.prod(windows.sizes)
    )


def _not_below_zero(index: Index) -> Expr:
    value = index_value(index)
    return value if index.bounds[0] >= 0 else a.where(a.lt(value, 0), 0, value)


def _inside(value: Expr, places: Sequence[tuple[Index, int]], other: Expr) -> Expr:
    """The value where all indices are within their sizes, else the other one."""
    for index, size in places:
        low, high = index.bounds
        conditions = [a.ge(index_value(index), 0)] * (low < 0) + [a.lt(index_value(index), size)] * (high >= size)
        for condition in conditions:
            value = masked(condition, value, other)
    return value


def _pair(value: Sequence[int]) -> tuple[int, int]:
    return (value[0], value[-1])
