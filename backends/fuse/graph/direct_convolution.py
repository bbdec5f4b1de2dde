"""Convolutions that kernels of ours do: an operation that takes a weight as they want it.

For images in channels-last memory the weight is laid out in blocks of output channels: (blocks, height, width, input
channels, channels of a block). A depthwise convolution, of which each output channel is of one input channel, has one
input channel there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.own_operations import NAMESPACE

FEW_PIXELS: Final = 4
"""Pixels of a result from which on a tile of them keeps the processor busy."""
FEW_PRODUCTS, FEW_DEPTHWISE = 1 << 18, 1 << 16
"""Multiplications from which on such a convolution is quicker than ATen's, with what it takes to lay an image out."""

_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_LIBRARY.define(
    "direct_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation) -> Tensor"
)
DIRECT: Final[torch._ops.OpOverload] = torch.ops.framejit.direct_convolution.default
"""(x, weight in blocks, bias, stride, padding, dilation): `conv2d` of x, in channels-last memory."""


def is_direct(node: Node) -> bool:
    """Whether a convolution of images is one that kernels of ours are the quickest for."""
    x, weight, bias, _, padding, _, groups = convolution_arguments(node)
    if isinstance(padding, str) or x.dim() != 4 or weight.dim() != 4:
        return False
    if groups != 1 and not groups == x.shape[1] == weight.shape[0] or (bias is not None and bias.dim() != 1):
        return False
    products = math.prod(weight.shape[1:]) * math.prod(node.result.shape)
    return (
        products >= (FEW_PRODUCTS if groups == 1 else FEW_DEPTHWISE)
        and math.prod(node.result.shape[2:]) >= FEW_PIXELS
        and target_of(x.device).channel_block(weight.shape[0]) > 0
    )


def convolution_arguments(node: Node) -> tuple[Any, ...]:
    """Image, weight, bias, stride, padding, dilation and groups of a node that is a `conv2d`."""
    return (*node.args, *(None, 1, 0, 1, 1)[len(node.args) - 2 :])


def of_both(number: Any) -> list[int]:
    """What a convolution is told for height and width, by one number or two."""
    numbers = [*number] if isinstance(number, (list, tuple)) else [number]
    return numbers * (2 // len(numbers))


def blocked_weight(weight: torch.Tensor, block: int, is_transposed: bool = False) -> torch.Tensor:
    """The weight of a convolution, or of a linear layer (one by one), in blocks of so many output channels, in memory
    of its own. A matrix may be given transposed."""
    weight = weight.t() if is_transposed else weight
    outputs, inputs, height, width = (*weight.shape, 1, 1)[:4]
    parts = weight.reshape(outputs // block, block, inputs, height, width)
    return parts.permute(0, 3, 4, 2, 1).clone(memory_format=torch.contiguous_format)


def _convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    """As ATen does it, where the operation is not lowered."""
    blocks, height, width, inputs, block = weight.shape
    plain = weight.permute(0, 4, 3, 1, 2).reshape(blocks * block, inputs, height, width)
    made = torch.conv2d(x, plain, bias, [*stride], [*padding], [*dilation], x.shape[1] // inputs)
    return made.clone(memory_format=torch.channels_last)


def _shape(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:
    blocks, *kernel, _, block = weight.shape
    sizes = [
        (size + 2 * edge - step * (under - 1) - 1) // every + 1
        for size, edge, step, under, every in zip(x.shape[2:], padding, dilation, kernel, stride)
    ]
    return torch.empty((x.shape[0], blocks * block, *sizes), device=x.device, memory_format=torch.channels_last)


_LIBRARY.impl("direct_convolution", _convolution, "CompositeExplicitAutograd")
_LIBRARY.impl("direct_convolution", _shape, "Meta")
