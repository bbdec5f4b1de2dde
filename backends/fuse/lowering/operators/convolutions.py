"""Convolutions: by kernels of ours, or by ATen with the bias added by ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.expr import COMPUTE
from framejit.backends.fuse.loop_ir.nodes import Buffer, Convolution
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.extern import may_speak_when_run
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.lowerings import lowers
from framejit.backends.fuse.lowering.operators import arithmetic as a
from framejit.backends.fuse.lowering.storages import Storages
from framejit.backends.fuse.plan.callables import callable_of
from framejit.backends.fuse.sizes.symbolic_size import as_sizes
from framejit.backends.fuse.targets.lookup import target_of

CONVOLUTIONS: Final = frozenset(
    ("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
)
BIAS: Final = 2
"""The position of the bias among the arguments of each of them."""


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


def lower_with_bias_apart(b: Builder, storages: Storages, node: Node) -> bool:
    """Have ATen do one of `CONVOLUTIONS` without its bias, which loops add as part of what follows, where its kernels
    would add it in a pass of their own. Says whether that is so."""
    out, bias = node.result, node.argument("bias")
    if (
        bias is None
        or not target_of(out.device).adds_bias_apart
        or out.dtype not in (*COMPUTE, torch.float32)
        or out.dtype not in COMPUTE and node.argument("groups", 1) != 1  # by kernels that do add it
        or bias.dtype != out.dtype
        or 0 in out.shape
    ):
        return False
    args, kwargs = storages.operands(node)
    added = args[BIAS] if len(args) > BIAS else kwargs.pop("bias")
    buffer = b.buffer(out.shape, out.strides, out.dtype, out.device)
    b.extern(
        callable_of(node.operation), (*args[:BIAS], None, *args[BIAS + 1 :]), kwargs, buffer,
        speaks=may_speak_when_run(node), accepted=partial(accepts, node),
    )
    behind = len(args[1].sizes) - 2  # dimensions of the weight's that are places
    channels = Tensor(added.content, (*added.sizes, *(1,) * behind), (*added.strides, *(0,) * behind), added.offset)
    storages.bind(out, b.map(a.add, Tensor.of(b.held(buffer)), channels, dtype=out.dtype))
    return True


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
