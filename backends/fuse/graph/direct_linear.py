"""Linear layers that kernels of ours do: an operation that takes a weight in blocks of output features, as a
convolution of one by one does (direct_convolution.py)."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.own_operations import NAMESPACE

SMALL: Final = 1 << 19
"""Elements of a weight up to which one row is worth a kernel. On two cores with AVX2, of ATen's time: 64 x 64 0.20,
512 x 512 0.49, 768 x 3072 0.76 in one run and 1.16 of a packed one, 4096 x 4096 1.04: memory sets the pace. Two rows
x 768 x 768 0.47, 256 rows 0.90."""

_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_LIBRARY.define("direct_linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor")
DIRECT_LINEAR: Final[torch._ops.OpOverload] = torch.ops.framejit.direct_linear.default
"""(x, weight in blocks (blocks, 1, 1, input features, features of a block), bias): `linear` of x."""


def linear_arguments(node: Node) -> tuple[Any, Any, Any, bool] | None:
    """Input, weight, bias, and whether the weight is transposed (input features x output features), of a node that
    computes a linear layer: `linear`, or a product with a matrix."""
    aten = torch.ops.aten
    if node.operation is aten.linear.default:
        return *(*node.args, None)[:3], False
    if node.operation is aten.addmm.default:
        bias, x, weight = node.args
    elif node.operation in (aten.mm.default, aten.matmul.default):
        (x, weight), bias = node.args, None
    else:
        return None
    return x, weight, bias, True


def is_direct_linear(node: Node) -> bool:
    """Whether a linear layer is one that kernels of ours are the quickest for."""
    arguments = linear_arguments(node)
    if arguments is None:
        return False
    x, weight, bias, is_transposed = arguments
    if weight.dim() != 2:
        return False
    features = weight.shape[int(is_transposed)]
    if bias is not None and tuple(bias.shape) != (features,):
        return False
    rows, elements = math.prod(x.shape[:-1]), math.prod(weight.shape)
    if not elements or not rows or rows == 1 and elements > SMALL:
        return False
    return target_of(x.device).channel_block(features) > 0


def _linear(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """As ATen does it, where the operation is not lowered."""
    plain = weight.permute(0, 4, 3, 1, 2).reshape(-1, weight.shape[3])
    return torch.nn.functional.linear(x, plain, bias)


def _shape(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], weight.shape[0] * weight.shape[4]))


_LIBRARY.impl("direct_linear", _linear, "CompositeExplicitAutograd")
_LIBRARY.impl("direct_linear", _shape, "Meta")
