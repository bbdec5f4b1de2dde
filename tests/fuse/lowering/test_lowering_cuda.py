"""What is lowered on CUDA only: reads at computed places. The loops are checked on the CPU; no GPU is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.loop_ir.nodes import LoweredGraph
from tests.fuse.interpreter import Interpreter
from tests.fuse.lowering.cuda_graphs import lowered_for_cuda
from tests.fuse.lowering.lowering_checks import compare, externs, kernels


def check_as_cuda(f: Callable[..., Any], *inputs: torch.Tensor, expected: torch.Tensor | None = None) -> LoweredGraph:
    """Lower `f` for inputs that are said to be on a GPU, and run the loops on the CPU. `expected`: what `f` gives on a
    GPU, if that is something else than on a CPU."""
    lowered = lowered_for_cuda(f, *inputs)
    assert all(buffer.device.type == "cuda" for buffer in lowered.buffers.values())
    (result,) = Interpreter(lowered).run(inputs)
    compare(result, f(*inputs) if expected is None else expected)
    return lowered


def test_numbers_in_sums_are_not_rounded_to_halves_on_gpus() -> None:
    x = torch.tensor([-1000.0, 3.0], dtype=torch.bfloat16)
    check_as_cuda(lambda x: x + 1000.1, x, expected=(x.float() + 1000.1).bfloat16())
    check_as_cuda(lambda x: 1000.1 - x, x.neg(), expected=(1000.1 + x.float()).bfloat16())
    check_as_cuda(lambda x: x.eq(1000.1), x.neg(), expected=torch.tensor([True, False]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("number", [3.7, 49, -1e39, 0.0, -math.inf])
def test_a_division_by_a_number_multiplies_with_its_inverse_on_gpus(dtype: torch.dtype, number: float) -> None:
    """What ATen's kernels say (BinaryDivTrueKernel.cu, BinaryDivTruncKernel.cu, BinaryDivFloorKernel.cu)."""
    torch.manual_seed(0)
    x = torch.cat([torch.randn(60) * 1000, torch.arange(0, 2000, 49), torch.tensor([0.0, -0.0, math.inf])]).to(dtype)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    inverse = torch.tensor(1.0, dtype=wide) / torch.tensor(number, dtype=wide)
    product = x.to(wide) * inverse
    exact = x.to(wide) * (1 / torch.tensor(number, dtype=torch.float64)).to(wide)
    check_as_cuda(lambda x: x / number, x, expected=exact.to(dtype))
    check_as_cuda(lambda x: x.clone().div_(number), x, expected=exact.to(dtype))
    check_as_cuda(lambda x: x.div(number, rounding_mode="trunc"), x, expected=product.trunc().to(dtype))
    if number:
        check_as_cuda(lambda x: x // number, x)
    else:
        check_as_cuda(lambda x: x // number, x, expected=product.to(dtype))


def test_a_factor_of_a_product_comes_last_on_gpus() -> None:
    big, one = torch.tensor([1e30, -1e30]), torch.ones(2)
    infinite = torch.tensor([math.inf, -math.inf])
    check_as_cuda(lambda x, p: torch.addcmul(x, p, p.abs(), value=1e-30), one, big, expected=infinite)
    check_as_cuda(lambda x, p: torch.addcdiv(x, p, 1 / p.abs(), value=1e-30), one, big, expected=infinite)


LABELS = torch.tensor([0, 3, -100, 4, 1, 1])


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: F.cross_entropy(x, y),
        lambda x, y: F.cross_entropy(x, y, reduction="sum"),
        lambda x, y: F.cross_entropy(x, y, reduction="none"),
        lambda x, y: F.cross_entropy(x, y.clamp(min=0), ignore_index=1),
        lambda x, y: F.nll_loss(x, y.clamp(min=0)),
        lambda x, y: F.embedding(y.clamp(min=0), x),
        lambda x, y: x.index_select(0, y.clamp(min=0)) * 2,
        lambda x, y: (x + 1).gather(1, y.clamp(min=0).unsqueeze(1).expand(-1, 3)),
        lambda x, y: x.sum(1) + F.layer_norm(x, (5,)).amax(1),
    ],
)
def test_computed_places_are_fused(f):
    assert externs(check_as_cuda(f, torch.randn(6, 5), LABELS)) == []


def test_an_empty_index_may_have_another_rank():
    assert check_as_cuda(lambda x, y: x.gather(0, y), torch.randn(5), torch.empty(2, 0, dtype=torch.int64)).outputs[
        0
    ].sizes == (2, 0)


def test_cross_entropy_reads_its_input_in_three_passes():
    """The logarithms of all probabilities are never put into memory."""
    graph = check_as_cuda(F.cross_entropy, torch.randn(6, 5), LABELS)
    assert all(buffer.sizes != (6, 5) for buffer in graph.buffers.values() if buffer.input is None)
    assert sum(bool(kernel.reduction) for kernel in kernels(graph)) == 4


def test_long_rows_are_cut_for_more_workers():
    graph = check_as_cuda(lambda x: x.sum(1), torch.randn(3, 1 << 17).double())
    assert [kernel.parallel for kernel in kernels(graph)][0][-1].size == 1024


@pytest.mark.parametrize(
    "f",
    [
        lambda x: F.max_pool2d(x, 2),
        lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
        lambda x: F.max_pool2d(x.exp() * 2 + 1, (3, 2), stride=(1, 2), padding=(1, 0), dilation=(2, 1)),
        lambda x: F.max_pool2d(x, 3, stride=2, ceil_mode=True),
        lambda x: F.max_pool2d(x.select(0, 0), 3, stride=2, padding=1),
    ],
)
def test_max_pooling(f):
    x = torch.randn(2, 3, 9, 10)
    x[0, 1, 2, 3], x[1] = torch.nan, -torch.inf
    assert externs(check_as_cuda(f, x)) == []
    assert externs(check_as_cuda(f, x.contiguous(memory_format=torch.channels_last))) == []


POOLS = [
    ((2,), {}),
    ((3,), {"stride": 2, "padding": 1}),
    (((3, 2),), {"stride": (1, 2), "padding": (1, 0)}),
    ((3,), {"stride": 2, "ceil_mode": True}),
    (((2, 3),), {"stride": (3, 1), "padding": (1, 1)}),
    ((1,), {"stride": 2}),
]


def pooled_image(memory_format: torch.memory_format) -> torch.Tensor:
    x = torch.randn(2, 3, 9, 10)
    x[0, 1, 2, 3], x[0, 2, 2:4, 3], x[1, 0], x[1, 1] = torch.nan, torch.nan, -torch.inf, 1.5
    return x.contiguous(memory_format=memory_format)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("args, options", POOLS)
def test_positions_of_maxima(args, options, memory_format):
    x = pooled_image(memory_format)
    assert externs(check_as_cuda(lambda x: F.max_pool2d(x, *args, **options, return_indices=True)[1], x)) == []
    both = check_as_cuda(lambda x: sum(F.max_pool2d(x, *args, **options, return_indices=True)), x)
    assert externs(both) == []


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("args, options", [*POOLS, ((2,), {"dilation": 2, "padding": 1})])
def test_gradient_of_maxima(args, options, memory_format):
    x = pooled_image(memory_format)
    pairs = {name: [*value] if isinstance(value, tuple) else [value] * 2 for name, value in options.items()}
    window = [*args[0]] if isinstance(args[0], tuple) else [args[0]] * 2
    geometry = (
        window, pairs.get("stride", window), pairs.get("padding", [0, 0]), pairs.get("dilation", [1, 1]),
        options.get("ceil_mode", False),
    )
    y, places = torch.ops.aten.max_pool2d_with_indices(x, *geometry)
    graph = check_as_cuda(
        lambda grad, x, places: torch.ops.aten.max_pool2d_with_indices_backward(grad, x, *geometry, places),
        torch.randn_like(y), x, places,
    )
    assert externs(graph) == []


def test_positions_in_windows_with_gaps_are_left_to_aten():
    graph = check_as_cuda(
        lambda x: F.max_pool2d(x, 2, dilation=2, padding=1, return_indices=True)[1], torch.randn(2, 3, 8, 8)
    )
    assert externs(graph) != []
