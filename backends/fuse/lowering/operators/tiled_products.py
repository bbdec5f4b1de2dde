"""Matrix products by tiles of registers, on CPUs.

Those with frozen weights, which were laid out when the graph was compiled (`graph/direct_linear.py`), are convolutions
of one by one. The others are small: a library takes longer to be called than such a product takes, and what is made of
its result would be another kernel. They are a node of their own, of which one text serves for all sizes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.nodes import Buffer, Convolution, SmallProduct
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor, contiguous_strides
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.operators.convolutions import laid_out
from framejit.backends.fuse.sizes.symbolic_size import as_sizes, hint, surely_equal
from framejit.backends.fuse.targets.lookup import target_of

STEPS: Final = (1, 1), (0, 0), (1, 1)
"""Stride, padding and dilation of a convolution of one by one."""
FEW_PRODUCTS, FEW_ELEMENTS, SHORT = 1 << 18, 1 << 14, 1 << 11
"""Multiplications, and elements of the right operand, up to which a product is small, and products of a sum up to which
this operand is laid out. On two cores with AVX2, one thread, laying out takes 0.2 ns an element, a multiplication 0.02
ns, and ATen 5 us longer than that."""


@lowers("direct_linear")
def _direct_linear(b: Builder, out: Value, x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    blocks = laid_out(b, weight, weight.strides)
    added = None if bias is None else laid_out(b, bias, (1,))
    return Tensor.of(b.held(_product(b, x, blocks, added, as_sizes(out.shape))))


def is_small(out: Value, left: Tensor, right: Tensor, bias: Tensor | None) -> bool:
    """Whether `left @ right`, plus a bias of so many columns, is small, and kernels of ours are quick.

    left: (..., inner). right: (inner, columns). All in float32.
    """
    operands = [each for each in (left, right, bias) if each is not None]
    if any(each.dtype != torch.float32 for each in operands) or len(right.sizes) != 2 or not left.sizes:
        return False
    sizes, (inner, columns) = as_sizes(out.shape), right.sizes
    known = (columns, *right.strides, left.strides[-1], *(() if bias is None else bias.sizes))
    if not all(type(size) is int for size in known) or bias is not None and bias.sizes != (columns,):
        return False
    is_laid_out = right.strides[1] == 1 and columns >= SmallProduct.NARROW
    if not is_laid_out and type(inner) is not int:  # else rows, and what is added up, may be left open
        return False
    inner = hint(inner)
    if not all(map(surely_equal, as_sizes(out.stride()), contiguous_strides(sizes))):
        return False
    elements = hint(math.prod(sizes))
    # one row takes as long as the matrix is read, and twice so where it is laid out before
    most = FEW_ELEMENTS if elements > columns else FEW_ELEMENTS // 2
    if not 0 < elements <= FEW_PRODUCTS // max(inner, 1) or not 0 < inner * columns <= most:
        return False
    if inner > SHORT and not is_laid_out:
        return False
    return target_of(left.device).channel_block(SmallProduct.NARROW) > 0


def lower_small(b: Builder, out: Value, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
    """The product, and bias, of operands of which `is_small` is true."""
    sizes, columns = as_sizes(out.shape), right.sizes[1]
    width = max(columns, SmallProduct.NARROW)
    rows = _rows(b, left)
    layouts = (b.layout(rows), b.layout(right))
    added = laid_out(b, bias, (1,)) if bias is not None and width == columns else None
    all_sizes = (*sizes[:-1], width)
    result = b.buffer(all_sizes, contiguous_strides(all_sizes), out.dtype, out.device)
    b.nodes.append(SmallProduct(*layouts, added, result, out.device, b.origins))
    part = Tensor(b.held(result), sizes, result.strides, 0)
    if width == columns:
        return part
    if bias is not None:  # of too few columns for a vector: added where the result is read
        return b.map(a.add, part, bias, dtype=out.dtype)
    return b.indexed(part.at, part, sizes=sizes, dtype=out.dtype, device=out.device)


def _rows(b: Builder, left: Tensor) -> Tensor:
    """An operand as a matrix: as it lies if one step leads from each row to the next, else a copy."""
    *leading, inner = left.sizes
    count = math.prod(leading)
    dims = [(size, step) for size, step in zip(leading, left.strides) if not surely_equal(size, 1)]
    if all(surely_equal(longer, size * step) for (_, longer), (size, step) in zip(dims, dims[1:])):
        return Tensor(left.content, (count, inner), (dims[-1][1] if dims else 0, left.strides[-1]), left.offset)
    buffer = laid_out(b, left, contiguous_strides(left.sizes), is_flat=True)
    return Tensor(b.held(buffer), (count, inner), (inner, 1), 0)


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
