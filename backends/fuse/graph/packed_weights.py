"""Which operations are quicker where their weight is laid out for them, as kernels of ours want it, or oneDNN and MKL.

ATen's convolutions and products copy a weight into such a layout at each call, or read it as it lies. A weight that is
frozen is laid out once (direct_convolution.py, direct_linear.py, packed_operations.py).
"""

from __future__ import annotations

import math
from typing import Final

import torch

from framejit.backends.fuse.graph.direct_convolution import is_direct
from framejit.backends.fuse.graph.direct_linear import is_direct_linear, linear_arguments
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.packed_operations import CONVOLUTION, PRODUCT
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.targets.lookup import target_of

FEW_ROWS: Final = 4
SHORT, SMALL = 128, 1 << 16
"""Rows, elements of one, and elements of a weight from which on a product with a packed weight is quicker, or the
packed one at most twice as large. On two cores with AVX-512, of ATen's time: 2 rows x 768 x 768 1.03, 4 x 512 x 512
0.78, 8 x 4096 x 1024 0.52, 1024 x 64 x 256 1.06. MKL reserves 8 MB for the smallest weight, and writes to 0.4 of it."""
FEW_PRODUCTS, FEW_GROUPED = 1 << 20, 1 << 18
"""Multiplications from which on a convolution with a packed weight is quicker, without and with groups. 16 channels of
8 x 8, 3 x 3 each, take 1.64 of ATen's time there, 64 channels of 14 x 14 0.69, 32 of 56 x 56 in groups of one 0.44."""


def packs_convolution(node: Node) -> bool:
    """Whether a node is a convolution of images that is quicker with a packed weight: by a kernel of ours, or by the
    library if this torch has that."""
    if node.operation is not torch.ops.aten.conv2d.default or not _is_packable(node):
        return False
    if is_direct(node):
        return True
    x, weight = node.args[:2]
    if x.dim() != 4 or CONVOLUTION is None or not torch._C._get_mkldnn_enabled():
        return False
    products = math.prod(weight.shape[1:]) * math.prod(node.result.shape)
    return products >= (FEW_PRODUCTS if x.shape[1] == weight.shape[1] else FEW_GROUPED)


def packs_product(node: Node) -> bool:
    """Whether a node is a linear layer that is quicker with a packed weight: by a kernel of ours, or by the library if
    this torch has that."""
    arguments = linear_arguments(node)
    if arguments is None or not _is_packable(node):
        return False
    if is_direct_linear(node):
        return True
    x, weight, _, is_transposed = arguments
    if is_transposed or weight.dim() != 2 or PRODUCT is None or not torch._C._get_mkldnn_enabled():
        return False
    return math.prod(x.shape[:-1]) >= FEW_ROWS and weight.shape[1] >= SHORT and weight.numel() >= SMALL


def _is_packable(node: Node) -> bool:
    """Whether all operands are what such operations take. What a packed weight is best for depends on all sizes, so
    that none may be symbolic."""
    return not node.kwargs and all(
        value.dtype == torch.float32 and target_of(value.device).packs_weights and not value.has_symbolic_sizes
        for value in (*node.values(), *node.returned())
    ) and all(isinstance(arg, Value) for arg in node.args[:2])
