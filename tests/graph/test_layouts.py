"""What GPU operations are given instead of what the program gave them: the same values, in the memory that they prefer.

There need be no GPU: graphs are traced with fakes on one, and the substitutes themselves are run on the CPU.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.graph.passes import layouts
from framejit.backends.fuse.loop_ir.nodes import ComputeNode, ExternNode, Layout, LoweredGraph
from tests.fuse.stages import lower


def lowered(function: Callable[..., Any], *makers: Callable[[], torch.Tensor]) -> LoweredGraph:
    """The lowering of a function of tensors on a GPU, which the makers make fakes of."""
    gm = fx.symbolic_trace(function)
    with FakeTensorMode():
        fakes = [make() for make in makers]
        expected = function(*fakes)
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    for node, fake in zip(placeholders, fakes):
        node.meta["val"] = fake
    output = next(node for node in gm.graph.nodes if node.op == "output")
    for node, fake in zip(output.args[0], expected):
        node.meta["val"] = fake
    return lower(gm, fakes)


def on_gpu(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> Callable[[], torch.Tensor]:
    return lambda: torch.empty(sizes, dtype=dtype, device="cuda")


def calls(graph: LoweredGraph, name: str) -> list[ExternNode]:
    return [
        node
        for node in graph.nodes
        if isinstance(node, ExternNode) and name in getattr(node.function, "__name__", str(node.function))
    ]


def test_convolutions_get_channels_last_and_the_result_keeps_eagers_strides():
    def f(x, w):
        return (F.conv2d(x, w).relu(),)

    graph = lowered(f, on_gpu(8, 64, 12, 12), on_gpu(32, 64, 3, 3))
    (conv,) = calls(graph, "conv2d")
    assert all(layout.strides[1] == 1 for layout in conv.args[:2])
    (output,) = graph.outputs
    assert isinstance(output, Layout) and output.strides == (3200, 100, 10, 1)


def test_weights_of_one_by_one_are_not_copied():
    def f(x, w):
        return (F.conv2d(x, w),)

    graph = lowered(f, on_gpu(8, 64, 12, 12), on_gpu(32, 64, 1, 1))
    (conv,) = calls(graph, "conv2d")
    assert conv.args[1].buffer.input == 1


def test_other_precisions_are_left_alone():
    def f(x, w):
        return (F.conv2d(x, w),)

    graph = lowered(f, on_gpu(8, 64, 12, 12, dtype=torch.float32), on_gpu(32, 64, 3, 3, dtype=torch.float32))
    assert not [node for node in graph.nodes if isinstance(node, ComputeNode)]


def test_a_mask_is_made_once_for_all_layers():
    def f(q, k, v, keep):
        mask = (keep.view(8, 1, 128, 1) > 0).expand(8, 1, 128, 128)  # in Python, indexing would want a real GPU
        first = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (F.scaled_dot_product_attention(first, k, v, attn_mask=mask),)

    graph = lowered(f, *(on_gpu(8, 12, 128, 64) for _ in range(3)), on_gpu(8, 128, dtype=torch.int64))
    masks = [node.kwargs.get("attn_mask") or node.args[3] for node in calls(graph, "scaled_dot_product_attention")]
    assert len(masks) == 2 and masks[0].buffer is masks[1].buffer
    assert masks[0].strides[-1] == 1 and masks[0].buffer.dtype == torch.bfloat16


def test_a_mask_written_in_between_is_made_anew():
    def f(q, k, v, mask):
        mask = mask.clone()
        first = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        mask.logical_not_()
        return (F.scaled_dot_product_attention(first, k, v, attn_mask=mask),)

    graph = lowered(f, *(on_gpu(8, 12, 128, 64) for _ in range(3)), on_gpu(128, 128, dtype=torch.bool))
    masks = [node.kwargs.get("attn_mask") or node.args[3] for node in calls(graph, "scaled_dot_product_attention")]
    assert masks[0].buffer is not masks[1].buffer


@pytest.mark.parametrize("shape", [(2, 3, 5, 7), (2, 1, 5, 7), (1, 1, 5, 7), (5, 7)])
@pytest.mark.parametrize("repeated", [False, True])
def test_the_numbers_of_a_mask_mean_the_same(shape: tuple[int, ...], repeated: bool):
    q, k, v = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    mask = torch.rand(shape) > 0.3
    mask[..., 0] = True
    if repeated:
        mask = mask[..., :1].expand(shape)
    numbers = layouts._numbers(mask, torch.float32)
    assert numbers.shape == mask.shape and numbers.stride(-1) == 1
    torch.testing.assert_close(
        F.scaled_dot_product_attention(q, k, v, attn_mask=numbers),
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask),
    )


@pytest.mark.parametrize("columns", [1025, 1031, 2047])
def test_a_product_in_longer_rows_is_the_same(columns: int):
    x, weight = torch.randn(2, 3, 16), torch.randn(columns, 16)
    product = layouts._product_in_longer_rows(x, weight)
    assert product.stride(1) % layouts.ROW == 0
    torch.testing.assert_close(product, F.linear(x, weight))


def test_logits_of_odd_number_come_out_contiguous():
    def f(x, w):
        return (F.linear(x, w),)

    graph = lowered(f, on_gpu(4, 128, 768), on_gpu(50257, 768))
    assert len(calls(graph, "mm.out")) == 2
    assert graph.outputs[0].strides == (128 * 50257, 50257, 1)


def test_what_is_only_possible_in_the_programs_layout_stays_in_it():
    def f(x, w):
        return (F.conv2d(x, w).view(8, -1),)

    graph = lowered(f, on_gpu(8, 64, 12, 12), on_gpu(32, 64, 3, 3))
    assert graph.outputs[0].sizes == (8, 3200)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize(("convolve", "dims"), [(F.conv1d, 1), (F.conv2d, 2), (F.conv_transpose2d, 2)])
def test_the_bias_of_a_convolution_is_added_by_what_follows(convolve: Any, dims: int, dtype: torch.dtype):
    def f(x, w, bias):
        return (convolve(x, w, bias).relu(),)

    shape = (8,) * dims
    graph = lowered(
        f, on_gpu(4, 16, *shape, dtype=dtype), on_gpu(16, 16, *(3,) * dims, dtype=dtype), on_gpu(16, dtype=dtype)
    )
    (call,) = calls(graph, convolve.__name__)
    assert call.args[2] is None and "bias" not in call.kwargs
    loops = [node for node in graph.nodes if isinstance(node, ComputeNode) and len(node.reads) == 2]
    assert len(loops) == 1  # adds the bias, and makes what is below zero zero


def test_the_bias_of_a_convolution_in_groups_is_added_by_what_follows():
    def f(x, w, bias):
        return (F.conv2d(x, w, bias, padding=3, groups=96).permute(0, 2, 3, 1).exp(),)

    (call,) = calls(lowered(f, on_gpu(2, 96, 14, 14), on_gpu(96, 1, 7, 7), on_gpu(96)), "conv2d")
    assert call.args[2] is None


def test_the_bias_of_a_convolution_in_groups_is_its_kernels_business_in_float32():
    def f(x, w, bias):
        return (F.conv2d(x, w, bias, groups=16).relu(),)

    graph = lowered(f, *(on_gpu(*sizes, dtype=torch.float32) for sizes in ((4, 16, 8, 8), (16, 1, 3, 3), (16,))))
    (call,) = calls(graph, "conv2d")
    assert call.args[2] is not None


@pytest.mark.parametrize("size", [(32, 32), (35, 34)])
def test_a_convolution_that_cuts_into_patches_is_a_product(size: tuple[int, int]):
    def f(x, w, bias):
        return (F.conv2d(x, w, bias, stride=8),)

    graph = lowered(f, on_gpu(4, 3, *size), on_gpu(16, 3, 8, 8), on_gpu(16))
    assert not calls(graph, "conv2d") and len(calls(graph, "linear")) == 1
    (output,) = graph.outputs
    assert isinstance(output, Layout) and output.sizes == (4, 16, 4, 4) and output.strides == (256, 16, 4, 1)
    sizes = ((4, 3, *size), (16, 3, 8, 8), (16,))
    x, w, bias = (torch.randn(each, dtype=torch.float64) for each in sizes)
    torch.testing.assert_close(layouts._product_of_patches(x, w, bias), F.conv2d(x, w, bias, stride=8))
    torch.testing.assert_close(layouts._product_of_patches(x, w), F.conv2d(x, w, stride=8))


@pytest.mark.parametrize(
    "arguments", [{"stride": 4}, {"stride": 8, "padding": 1}, {"stride": 8, "dilation": 2}, {"stride": (8, 4)}]
)
def test_other_convolutions_stay_convolutions(arguments: dict[str, Any]):
    def f(x, w):
        return (F.conv2d(x, w, **arguments),)

    graph = lowered(f, on_gpu(4, 3, 32, 32), on_gpu(16, 3, 8, 8))
    assert len(calls(graph, "conv2d")) == 1


def test_many_channels_stay_a_convolution():
    def f(x, w):
        return (F.conv2d(x, w, stride=2),)

    graph = lowered(f, on_gpu(4, 64, 32, 32), on_gpu(128, 64, 2, 2))
    assert len(calls(graph, "conv2d")) == 1
