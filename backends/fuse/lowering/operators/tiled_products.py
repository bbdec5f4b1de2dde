"""Matrix products by the kernels of convolutions: a linear layer is a convolution of one by one.

Those with frozen weights, which were laid out when the graph was compiled (`graph/direct_linear.py`), and small ones:
a library takes longer to be called than such a product takes, and what is made of its result would be another kernel.
The right operand of a small one is laid out at each call, by a kernel that may compute it as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import Expr, const, index_value, masked
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import Buffer, Convolution
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.convolutions import laid_out
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.targets.lookup import target_of

STEPS: Final = (1, 1), (0, 0), (1, 1)
"""Stride, padding and dilation of a convolution of one by one."""
FEW_PRODUCTS, FEW_ELEMENTS = 1 << 18, 1 << 14
"""Multiplications, and elements of the right operand, up to which a product is small. On two cores with AVX2, one
thread, laying out takes 0.2 ns an element, a multiplication 0.02 ns, and ATen 5 us longer than that."""
LANES: Final = 8
"""Columns are made a multiple of it."""


@lowers("direct_linear")
def _direct_linear(b: Builder, out: Value, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    blocks = laid_out(b, weight, weight.strides)
    added = None if bias is None else laid_out(b, bias, (1,))
    return Tensor.of(b.held(_product(b, x, blocks, added, as_sizes(out.shape))))


def is_small(out: Value, left: Tensor, right: Tensor, bias: Tensor | None) -> bool:
    """Whether `left @ right`, plus a bias of so many columns, is small, and kernels of ours are quick.

    left: (..., inner), of more than one row. right: (inner, columns). All in float32.
    """
    operands = [each for each in (left, right, bias) if each is not None]
    if any(each.dtype != torch.float32 for each in operands) or len(right.sizes) != 2 or not left.sizes:
        return False
    if not all(type(size) is int for each in operands for size in (*each.sizes, *each.strides)):
        return False
    sizes, (inner, columns) = as_sizes(out.shape), right.sizes
    if bias is not None and bias.sizes != (columns,) or as_sizes(out.stride()) != contiguous_strides(sizes):
        return False
    if not columns < math.prod(sizes) <= FEW_PRODUCTS // max(inner, 1) or not 0 < inner * columns <= FEW_ELEMENTS:
        return False  # one row takes as long as the matrix is read, and twice so where it is laid out before
    return target_of(left.device).channel_block(_width(columns)) > 0


def lower_small(b: Builder, out: Value, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """The product, and bias, of operands of which `is_small` is true."""
    sizes, columns = as_sizes(out.shape), right.sizes[1]
    width = _width(columns)
    block = target_of(left.device).channel_block(width)
    operands = [each for each in (left, right, bias) if each is not None]
    b.prepare(*operands)

    def element(indices: Sequence[Index]) -> Expr:
        number, _, _, inner, channel = indices
        return _up_to(columns, width, number * block + channel, lambda at: right.at([inner, at]))

    laid = b.indexed(
        element, right, sizes=(width // block, 1, 1, right.sizes[0], block), dtype=right.dtype, device=right.device
    )
    added = None
    if bias is not None:
        wide = b.indexed(
            lambda indices: _up_to(columns, width, indices[0], lambda at: bias.at([at])), bias, sizes=(width,),
            dtype=bias.dtype, device=bias.device,
        )
        added = b.realise(wide.content) if width != columns else laid_out(b, bias, (1,))
    whole = b.held(_product(b, left, b.realise(laid.content), added, (*sizes[:-1], width)))
    part = Tensor(whole, sizes, whole.strides, 0)
    if width == columns:
        return part
    return b.indexed(part.at, part, sizes=sizes, dtype=out.dtype, device=out.device)


def _width(columns: int) -> int:
    """How many columns kernels of ours give: a few more, where vectors would not be full."""
    return columns + -columns % LANES


def _up_to(end: int, width: int, place: Index, element: Any) -> Expr:
    """An element at a place, and zero from an end on, where there are more places."""
    if end == width:
        return element(place)
    return masked(a.lt(index_value(place), end), element(place), const(0.0, torch.float32))


def _product(b: Builder, x: Tensor, blocks: Buffer, bias: Buffer | None, sizes: Sequence[int]) -> Buffer:
    result = b.buffer(sizes, contiguous_strides(sizes), x.dtype, x.device)
    rows, features = math.prod(sizes[:-1]), x.sizes[-1]
    image = laid_out(b, x, contiguous_strides(x.sizes), is_flat=True)
    b.nodes.append(
        Convolution(
            image, (1, features, rows, 1), blocks, bias, result, (1, sizes[-1], rows, 1), *STEPS, x.device, b.origins,
            "linear",
        )
    )
    return result
