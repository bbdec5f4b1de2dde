"""Operations that take a weight as oneDNN and MKL lay it out for themselves, and what lays it out so.

They are ATen's own (native/mkldnn/Conv.cpp and Linear.cpp in torch), and so are those that lay out
(native/mkldnn/MKLDNNConversions.cpp). What these give is opaque: a tensor without storage or strides, that only such
operations can read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import torch


def packed_convolution_weight(
    weight: torch.Tensor, padding: Sequence[int], stride: Sequence[int], dilation: Sequence[int], groups: int,
    sizes: Sequence[int],
) -> torch.Tensor:
    """The weight of a convolution over images (float32, output channels x input channels of a group x height x width)
    as oneDNN wants it for inputs of these `sizes`."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_convolution_weight(
        weight, [*padding], [*stride], [*dilation], groups, [*sizes]
    )
    return packed


def packed_product_weight(weight: torch.Tensor, rows: int) -> torch.Tensor:
    """The weight of a linear layer (float32, output features x input features) as MKL wants it for so many rows: one
    column."""
    packed: torch.Tensor = torch.ops.mkl._mkl_reorder_linear_weight(weight, rows)
    return packed


def _there() -> Iterator[torch._ops.OpOverload]:
    if torch._C._has_mkldnn:
        yield torch.ops.mkldnn._convolution_pointwise.default
        if torch._C.has_mkl:
            yield torch.ops.mkl._mkl_linear.default


OPERATIONS: Final = {operation._opname: operation for operation in _there()}
"""Operations on packed weights that this torch has, by name. The convolution's result is in channels-last memory,
whatever its input is in; the product takes the weight as it was, too, for calls with another number of rows."""
CONVOLUTION, PRODUCT = map(OPERATIONS.get, ("_convolution_pointwise", "_mkl_linear"))
