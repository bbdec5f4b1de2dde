"""Operations that programs come to on GPUs alone are recorded with all their gradients. No GPU is needed: fakes do not
run their kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.fuse.joint_graphs import joint_graph

aten = torch.ops.aten
HEADS = [(2, 4, 16, 64)] * 3


OPERATIONS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "flash attention": (lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0] * 2, HEADS),
    "flash attention with dropout": (
        lambda q, k, v: aten._scaled_dot_product_flash_attention(q, k, v, 0.5, False)[0], HEADS
    ),
    "efficient attention": (
        lambda q, k, v: aten._scaled_dot_product_efficient_attention(q, k, v, None, True)[0].sin(), HEADS
    ),
    "efficient attention with numbers added": (
        lambda q, k, v, mask: aten._scaled_dot_product_efficient_attention(q, k, v, mask, True)[0],
        [*HEADS, (2, 4, 16, 16)],
    ),
    "attention of cudnn": (
        lambda q, k, v: aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True)[0] * 3, HEADS
    ),
    "batch norm of cudnn": (
        lambda x, w, b: aten.cudnn_batch_norm(x, w, b, None, None, True, 0.1, 1e-5)[0] * 2, [(4, 8, 5, 5), (8,), (8,)]
    ),
    "group norm": (
        lambda x, w, b: aten.native_group_norm(x, w, b, 4, 8, 25, 2, 1e-5)[0], [(4, 8, 5, 5), (8,), (8,)]
    ),
    "maxima with positions": (lambda x: aten.max_pool2d_with_indices(x, [3, 3], [2, 2], [1, 1])[0], [(4, 8, 9, 9)]),
    "dropout": (lambda x: aten.native_dropout(x, 0.5, True)[0] * 2, [(4, 8)]),
    "root mean square norm": (lambda x, w: aten._fused_rms_norm(x, [8], w, 1e-5)[0], [(4, 8), (8,)]),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_each_leaf_has_a_gradient(name: str) -> None:
    function, shapes = OPERATIONS[name]
    (backward,) = joint_graph(function, [torch.empty(shape, dtype=torch.bfloat16) for shape in shapes]).backwards
    assert all(gradient is not None for gradient in backward.gradients), backward
