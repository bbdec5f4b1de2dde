"""Convolutions by kernels of ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.nodes import Buffer, Convolution
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.sizes.symbolic_size import as_sizes


@lowers("direct_convolution")
def _direct_convolution(
    b: Builder, out: Value, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int],
) -> Any:
    sizes, strides = as_sizes(out.shape), as_sizes(out.stride())
    result = b.buffer(sizes, strides, out.dtype, out.device)
    image = laid_out(b, x, channels_last(x.sizes))
    (down, across), (above, before), (rows, columns) = stride, padding, dilation
    b.nodes.append(
        Convolution(
            image, _four(image.sizes), laid_out(b, weight, weight.strides),
            None if bias is None else laid_out(b, bias, (1,)), result, _four(sizes), (down, across), (above, before),
            (rows, columns), out.device, b.origins,
        )
    )
    return Tensor.of(b.held(result))


def _four(sizes: tuple[int, ...]) -> tuple[int, int, int, int]:
    images, channels, height, width = sizes
    return images, channels, height, width


def channels_last(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of images whose channels lie side by side."""
    _, channels, height, width = sizes
    return height * width * channels, 1, width * channels, channels


def laid_out(b: Builder, tensor: Tensor, strides: Sequence[int], is_flat: bool = False) -> Buffer:
    """A buffer that a tensor is all of, with these strides: its own, or a copy. Where all are in one piece, its sizes
    may be others (`is_flat`)."""
    buffer = b.realise(tensor.content)
    lies = all(
        given == wanted for size, given, wanted in zip(tensor.sizes, tensor.strides, strides) if size > 1
    )
    fits = buffer.extent == math.prod(tensor.sizes) if is_flat else buffer.sizes == tensor.sizes
    if lies and not tensor.offset and fits:
        return buffer
    copy = b.lazy(tensor.sizes, strides, tensor.dtype, tensor.device, tensor.at, [tensor.content], 0)
    return b.realise(copy)
