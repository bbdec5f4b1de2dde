"""Reductions, normalisation, softmax, losses."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from tests.fuse.lowering.lowering_checks import check, externs, kernels, lowered

REDUCTIONS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "amin": torch.amin,
    "var": torch.var,
    "std": torch.std,
    "any": torch.any,
    "all": torch.all,
    "argmax": torch.argmax,
    "argmin": torch.argmin,
    "max": torch.max,
    "min": torch.min,
    "prod": torch.prod,
    "logsumexp": torch.logsumexp,
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "norm": torch.norm,
    "count_nonzero": torch.count_nonzero,
    "var_mean": torch.var_mean,
    "std_mean": torch.std_mean,
}


@pytest.mark.parametrize("f", REDUCTIONS.values(), ids=REDUCTIONS.keys())
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_over_a_dimension(f, dim):
    def g(x):
        result = f(x, dim=dim)
        return tuple(result) if isinstance(result, tuple) else result

    check(g, torch.randn(4, 5, 6))
    check(g, torch.randn(4, 5, 6).permute(2, 0, 1))


@pytest.mark.parametrize(
    "name",
    ["sum", "mean", "amax", "amin", "var", "std", "any", "all", "argmax", "max", "min", "prod", "norm", "median"],
)
def test_over_everything(name):
    check(lambda x: getattr(torch, name)(x), torch.randn(4, 5, 6), fused=name != "median")


@pytest.mark.parametrize("name", ["sum", "mean", "amax", "var", "std", "logsumexp"])
@pytest.mark.parametrize("dims", [(0, 2), (1, 2), (0, 1, 2)])
@pytest.mark.parametrize("keepdim", [True, False])
def test_over_several_dimensions(name, dims, keepdim):
    check(lambda x: getattr(torch, name)(x.sin(), dims, keepdim=keepdim), torch.randn(4, 5, 6))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.bfloat16, torch.float16, torch.float64])
def test_dtypes(dtype):
    def f(x):
        maximal = (x.amax(0), x.max(1)[0], x.argmax(1)) if dtype != torch.bool else ()
        floating = (x.mean(1), x.var(0), x.softmax(0)) if dtype.is_floating_point else ()
        return x.sum(), x.sum(1), x.prod(0), x.any(1), x.all(), *maximal, *floating

    check(f, (torch.randn(4, 5) * 2).to(dtype), fused=False, atol=1e-2, rtol=2e-2)


def test_given_dtype():
    check(
        lambda x: (
            x.sum(dtype=torch.float64), x.mean(1, dtype=torch.float64), x.softmax(1, dtype=torch.float64),
            x.int().sum(0, dtype=torch.int32),
        ),
        torch.randn(4, 5),
    )


def test_nan_and_infinity():
    x = torch.tensor([[1.0, math.nan, 2.0], [math.inf, 1.0, -math.inf], [-math.inf] * 3])
    check(lambda x: (x.amax(1), x.max(1), x.argmax(1), x.argmin(1), x.sum(1), x.softmax(1), x.logsumexp(1)), x)


def test_ties_go_to_the_first():
    check(
        lambda x: (x.argmax(1), x.argmin(1), x.max(0), x.argmax()),
        torch.tensor([[1.0, 3.0, 3.0, 1.0], [3.0, 1.0, 3.0, 1.0]]),
    )


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_of_nothing(shape):
    check(lambda x: (x.sum(0), x.sum(1), x.mean(1), x.prod(), x.any(1), x.all(0)), torch.randn(shape))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_the_spread_of_nothing_stays_with_aten_which_warns_of_it(shape):
    check(lambda x: x.var(1), torch.randn(shape), fused=False)


def test_single_elements():
    check(
        lambda x: (x.sum(1), x.amax(1, keepdim=True), x.argmax(1), x.mean(), x.softmax(1), x.var(1, correction=0)),
        torch.randn(3, 1),
    )
    check(lambda x: (x.sum(), x.amax(), x.argmax(), x.mean(), x.softmax(0)), torch.tensor(2.0), fused=False)


@pytest.mark.parametrize("shape", [(1 << 17,), (3, 99991), (70000, 3), (1 << 18, 2)])
def test_long_rows_are_reduced_in_parts(shape):
    x = torch.randn(shape)
    graph = check(lambda x: (x.sin().sum(-1 if x.shape[-1] > 10 else 0), x.amax(), x.argmax()), x, rtol=1e-4, atol=1e-3)
    assert len(kernels(graph)) == 5  # a sum and a maximum in two stages each


@pytest.mark.parametrize("p", [0, 1, 2, math.inf, -math.inf, 3])
def test_norms(p):
    check(
        lambda x: (torch.linalg.vector_norm(x, p, dim=1), torch.linalg.vector_norm(x, p)),
        torch.randn(4, 5),
        fused=p != 3,
    )


def test_normalised_vectors():
    check(lambda x, y: (F.normalize(x, dim=1), F.cosine_similarity(x, y)), torch.randn(4, 5), torch.randn(4, 5))


# ---- normalisation ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(dtype, affine):
    x, w, b = torch.randn(4, 5, 16).to(dtype), torch.randn(16).to(dtype), torch.randn(16).to(dtype)
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {}
    check(lambda x, w, b: F.layer_norm(x, (16,), *((w, b) if affine else ())), x, w, b, **tolerance)
    check(lambda x, w, b: F.layer_norm(x + x.sin(), (5, 16)), x, w, b, **tolerance)
    check(lambda x, w, b: F.rms_norm(x, (16,), w if affine else None), x, w, b, **tolerance)


def test_group_norm():
    w, b = torch.randn(6), torch.randn(6)
    for x in (
        torch.randn(2, 6, 4, 5), torch.randn(2, 6, 4, 5).to(memory_format=torch.channels_last), torch.randn(3, 6),
    ):
        check(lambda x, w, b: (F.group_norm(x, 3, w, b), F.group_norm(x * 2, 2)), x, w, b)
    check(lambda x: F.instance_norm(x), torch.randn(2, 6, 4, 5))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_batch_norm(training, memory_format):
    norm = torch.nn.BatchNorm2d(6).requires_grad_(False).train(training)
    norm.weight.normal_()
    x = torch.randn(2, 6, 4, 5).to(memory_format=memory_format)
    mean, var = torch.randn(6), torch.rand(6) + 0.5
    check(
        lambda x, m, v, w, b: F.relu(F.batch_norm(x, m, v, w, b, training, 0.1)), x, mean, var, norm.weight, norm.bias
    )
    check(lambda x: F.batch_norm(x, None, None, training=True), x)
    check(lambda x, m, v: (F.batch_norm(x, m, v, training=training) + 1, m * 2), torch.randn(5, 6), mean, var)


# ---- softmax and losses ----


@pytest.mark.parametrize(
    "f",
    [lambda x: F.softmax(x / 8, -1), lambda x: F.log_softmax(x * 2 + 1, 0), lambda x: F.softmin(x, 1)],
)
def test_softmax(f):
    check(f, torch.randn(4, 5))
    check(f, torch.randn(4, 5).bfloat16(), atol=1e-2, rtol=2e-2)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction):
    x, y = torch.randn(4, 5), torch.rand(4, 5)
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.binary_cross_entropy_with_logits):
        check(lambda x, y, loss=loss: loss(x, y, reduction=reduction), x, y)
    if reduction != "mean":  # of which torch warns at each call, and so the graph is left to ATen
        check(lambda x, y: F.kl_div(x.log_softmax(1), y, reduction=reduction), x, y)


def test_cross_entropy_leaves_the_choice_to_aten_on_the_cpu():
    x, y = torch.randn(6, 5), torch.tensor([0, 1, 2, -100, 4, 3])
    graph = check(
        lambda x, y: (
            F.cross_entropy(x, y),
            F.cross_entropy(x, y, reduction="none"),
            F.cross_entropy(x, y, label_smoothing=0.1),
        ),
        x,
        y,
        fused=False,
    )
    assert set(externs(graph)) == {"nll_loss_forward"}


def test_softmax_is_three_loop_nests():
    softmax = lowered(lambda x: F.softmax(x / 8, -1), torch.randn(4, 5))
    assert [bool(kernel.reduction) for kernel in kernels(softmax)] == [
        True, True, False,
    ]
