"""Tensors, numbers and programs at the edges: each as eager does it."""

from __future__ import annotations

import math
import time

import pytest
import torch
from torch import nn

import framejit
from tests.fuse.lowering.lowering_checks import copies
from tests.fuse.lowering.plan_checks import check, planned

INF, NAN = math.inf, math.nan
SPECIAL = torch.tensor(
    [0.0, -0.0, 1.0, -1.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-39, 3.4e38, -3.4e38, 0.5, 2.5, -2.5, 1e-8]
)


# ---- shapes and strides ----


@pytest.mark.parametrize("sizes", [(0,), (3, 0), (0, 3), (2, 0, 4)])
def test_no_elements(sizes):
    x = torch.randn(sizes)
    check(lambda x: (x.relu() * 2, x.sum(), x.sum(0), (x + 1).sum(-1), x.softmax(-1), x.transpose(0, -1).exp()), x)


def test_reductions_of_nothing_raise_as_eager_does():
    compiled, _ = planned(lambda x: (x * 2).amax(1))
    with pytest.raises(IndexError):
        compiled(torch.randn(3, 0))


def test_no_dimensions():
    x, y = torch.tensor(2.5), torch.randn(4)
    check(lambda x, y: (x * 2, x.exp() + y, x.sum(), (x + 1).reshape(1), (y * x).amax()), x, y)


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.t(), lambda x: x[::2], lambda x: x[:, 1:], lambda x: x[1:, ::3], lambda x: x.expand(3, *x.shape),
        lambda x: x[:, :1].expand(-1, 7),
        lambda x: x.flip(0),
    ],
)
def test_strided_inputs(layout):
    x = layout(torch.randn(8, 10))
    check(
        lambda x: (
            x + 1, x.sin().sum(-1), x.t() * 2 if x.dim() == 2 else x * 2, x.contiguous() * 3,
            (x - x.mean(-1, keepdim=True)).relu(),
        ),
        x,
    )


def test_windows_that_overlap():
    x = torch.arange(20.0).as_strided((5, 8), (3, 1))
    check(lambda x: (x * 2, x.sum(0), x.softmax(1)), x)


def test_writing_through_overlapping_memory_is_an_error_as_in_eager():
    compiled, _ = planned(lambda x: x.add_(1))
    with pytest.raises(RuntimeError, match="single memory location"):
        compiled(torch.zeros(1).expand(4))


def test_channels_last():
    x = torch.randn(2, 4, 5, 6).to(memory_format=torch.channels_last)
    check(lambda x: (x.relu() + 1, (x * 2).sum((2, 3)), x.mean(1, keepdim=True) * x), x)


def test_an_offset_into_the_storage():
    x = torch.randn(40)[7:31].view(4, 6)
    check(lambda x: (x * 2, x[1:].exp(), x.view(24)[5:] + 1), x)


@pytest.mark.slow
def test_more_than_two_to_the_31_elements():
    """2 GiB of int8 at each end of an index that does not fit 32 bits."""
    n = (1 << 31) + 4096
    x = torch.zeros(n, dtype=torch.int8)
    x[-1], x[0], x[1 << 31] = 7, 3, 5
    compiled, graphs = planned(lambda x: ((x[-4096:] + 1), x[::1 << 20] * 2, x.amax()))
    tail, sparse, most = compiled(x)
    assert not graphs[0].reason
    assert torch.equal(tail, x[-4096:] + 1)
    assert torch.equal(sparse, x[:: 1 << 20] * 2)
    assert most == 7


def test_strides_that_reach_beyond_two_to_the_31():
    """One element a page of a memory that is never touched elsewhere."""
    base = torch.empty((1 << 32) + 64, dtype=torch.int8)
    x = base.as_strided((3, 4), (1 << 31, 1))
    x.copy_(torch.arange(12).view(3, 4))
    check_in_place = planned(lambda x: (x * 2, x.sum(0)))[0]
    doubled, total = check_in_place(x)
    assert torch.equal(doubled, x * 2)
    assert torch.equal(total, x.sum(0))


def test_strides_that_reach_beyond_two_to_the_31_on_a_gpu():
    from torch._subclasses.fake_tensor import FakeTensorMode

    from framejit.backends.fuse.schedule.make_kernels import schedule
    from framejit.backends.fuse.triton.kernel_source import triton_source
    from tests.fuse.stages import lower

    for step, is_wide in ((1 << 31, True), (1 << 20, False)):
        with FakeTensorMode(allow_fallback_kernels=False):
            fake = torch.empty_strided((3, 4), (step, 1), dtype=torch.int8, device="cuda")
        graph = torch.fx.Graph()
        node = graph.placeholder("x")
        node.meta["val"] = fake
        graph.output((graph.call_function(torch.mul, (node, 2)),))
        (kernel,) = schedule(lower(torch.fx.GraphModule(nn.Module(), graph), [fake]))
        assert ("int64" in triton_source(kernel).code) == is_wide


# ---- numbers ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_special_numbers(dtype):
    x = SPECIAL.to(dtype)
    check(
        lambda x, y: (
            x + y, x * y, x / y, x.maximum(y), x.minimum(y), torch.fmax(x, y), x.relu(), x.clamp(-1, 1), x.sigmoid(),
            x.tanh(), x.exp(), x.log(), x.sqrt(),
            x.rsqrt(), x.reciprocal(), x.abs(), -x, x.sign(), x.round(), x.floor(), x.trunc(), x == y, x < y, x != x,
            x.isnan(), x.isinf(), x.isfinite(),
        ),
        x, x.flip(0),
    )


def test_special_numbers_in_reductions():
    rows = torch.stack([SPECIAL.roll(k)[:5] for k in range(16)])
    check(
        lambda x: (
            x.amax(1), x.amin(1), x.argmax(1), x.argmin(1), x.max(1), (x * 1e-30).sum(1), x.softmax(1),
            x.isnan().any(1), x.logsumexp(1),
        ),
        rows,
    )


@pytest.mark.parametrize(
    "op",
    [
        lambda x: x * 1, lambda x: x.abs(), lambda x: -x, lambda x: x + 0.0, lambda x: x - 0.0, lambda x: x * 0,
        lambda x: x.round(), lambda x: x.sin(),
        lambda x: 0.0 - x, lambda x: x.relu(), lambda x: x.clamp(min=0.0), lambda x: x.trunc(), lambda x: x / -1,
        lambda x: x.float() - x,
    ],
)
def test_the_sign_of_zero(op):
    x = torch.tensor([0.0, -0.0, -0.4, 0.4])
    check(lambda x: (op(x), torch.copysign(torch.ones_like(x), op(x)), op(x).signbit()), x)


def test_denormals_survive():
    x = torch.tensor([1e-40, -1e-44, 1.1754944e-38, 5e-39])
    (graph,) = check(lambda x: (x * 0.5, x + x, x.abs(), x * 1), x, atol=0, rtol=0)
    assert graph.kernels
    check(lambda x: (x * 0.5, x + x), x.to(torch.bfloat16), atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integers_wrap_around(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.max, 0, 1, limits.max - 1, limits.min + 1], dtype=dtype)
    check(lambda x: (x + 1, x - 1, x * 3, -x, x.abs(), x * x, x << 1, x >> 1, ~x, x.sum(), x.cumsum(0), x.square()), x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_integer_division_rounds_as_eager_does(dtype):
    x = torch.tensor([7, -7, 8, -8, 0, 1, -1, 127, -128], dtype=dtype)
    check(lambda x: (x // 3, x // -3, x % 3, x % -3, torch.div(x, 3, rounding_mode="trunc"), x / 3), x)
    check(lambda x: (torch.fmod(x, 3), torch.fmod(x, -3), x.float() // 3, x.float() % -3), x)
    y = torch.tensor([3, -3, 5, -5, 7, -1, 1, 2, 100], dtype=dtype)
    check(lambda x, y: (x // y, x % y, torch.div(x, y, rounding_mode="trunc"), torch.fmod(x, y), x / y), x, y)


def test_integer_division_by_zero_raises():
    compiled, _ = planned(lambda x, y: (x + 1) // y)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        compiled(torch.tensor([1, 2]), torch.tensor([1, 0]))


def test_float_division_by_zero():
    x = torch.tensor([1.0, -1.0, 0.0, NAN, INF])
    check(lambda x: (x / 0.0, x // 0.0, x % 0.0, x / -0.0, torch.fmod(x, 0.0)), x)


def test_floats_to_integers_and_back():
    x = torch.tensor([1.9, -1.9, 0.0, -0.0, 255.0, 100.5])
    check(
        lambda x: (
            x.int(), x.long(), x.bool(), x.to(torch.uint8), x.int().float(), x.to(torch.bfloat16).float(),
            x.double() * 0.1,
        ),
        x,
    )


PROMOTED = [torch.bool, torch.uint8, torch.int32, torch.int64, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("first", PROMOTED)
def test_type_promotion(first):
    x = torch.tensor([0, 1, 2, 3]).to(first)
    for second in PROMOTED:
        y, scalar = torch.tensor([1, 1, 0, 2]).to(second), torch.tensor(2).to(second)
        check(
            lambda x, y, s: (
                x + y, x * s, s + x, x == y, torch.where(x > 0, x, y), x * 2, x * 2.5, torch.maximum(x, y),
            ),
            x,
            y,
            scalar,
        )


@pytest.mark.parametrize(
    "reduce",
    [
        lambda x: x.sum(), lambda x: x.sum(-1), lambda x: x.sum(0), lambda x: x.mean(), lambda x: x.var(1),
        lambda x: x.std(0), lambda x: x.softmax(1),
        lambda x: x.logsumexp(1), lambda x: x.norm(dim=1), lambda x: nn.functional.layer_norm(x, x.shape[1:]),
        lambda x: x.view(-1).var(),
    ],
)
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_reductions_are_as_exact_as_eager(reduce, shift):
    x = torch.randn(64, 4099) + shift
    compiled, graphs = planned(lambda x: reduce(x * 1.0))
    exact = reduce(x.double())
    mine, theirs = ((result.double() - exact).abs().max() for result in (compiled(x), reduce(x)))
    assert not graphs[0].reason
    assert mine <= 2 * theirs + 4 * torch.finfo(torch.float32).eps * exact.abs().max()


def test_a_long_sum_of_bfloat16():
    x = torch.full((1 << 18,), 0.01, dtype=torch.bfloat16)
    compiled, _ = planned(lambda x: (x * 1).sum())
    exact = x.double().sum()
    assert abs(compiled(x).double() - exact) <= abs(x.sum().double() - exact) + 0.01 * exact


# ---- aliases and writes ----


def test_views_of_inputs_are_returned_as_views():
    check(lambda x: (x[1:], x.t(), x.view(-1), x.detach(), x[0, 0], x.unsqueeze(0), x * 2, x), torch.randn(4, 5))


def test_one_result_twice():
    check(lambda x: (lambda y: (y, y, y[1:], y.view(-1)))(x * 2), torch.randn(4, 5))


def test_inputs_that_are_one_tensor():
    x = torch.randn(5)
    check(lambda x, y: (x + y, x * 2, y), x, x)

    def writes(x, y):
        x.add_(1)
        return x + y

    check(writes, x, x)


def test_inputs_that_share_memory():
    base = torch.randn(10)
    for first, second in ((base, base[:]), (base[:6], base[4:]), (base[::2], base[1::2]), (base.view(2, 5), base)):

        def writes(x, y):
            x.mul_(2)
            z = y + 1
            y.sub_(3)
            return z, x.sum(), y * 2

        mine, theirs = base.clone(), base.clone()
        views = [
            [memory.as_strided(view.shape, view.stride(), view.storage_offset()) for view in (first, second)]
            for memory in (mine, theirs)
        ]
        got, expected = planned(writes)[0](*views[0]), writes(*views[1])
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(mine, theirs)


def test_inputs_that_come_to_share_memory_after_compiling():
    def writes(x, y):
        x.mul_(2)
        return x + y

    compiled, _ = planned(writes)
    compiled(torch.randn(6), torch.randn(6))
    x, other = torch.randn(6), torch.randn(8)
    torch.testing.assert_close(compiled(x, x), 4 * x / 2)
    mine, theirs = other.clone(), other.clone()
    torch.testing.assert_close(compiled(mine[:6], mine[2:]), writes(theirs[:6], theirs[2:]))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1), lambda x: x[1:].mul_(2), lambda x: x.t().copy_(x.t() + 1), lambda x: x[::2].zero_(),
        lambda x: x.flatten()[3:7].fill_(5),
        lambda x: x[0].add_(x[1]), lambda x: x[1:].copy_(x[:-1].clone()), lambda x: x.relu_().add_(x),
        lambda x: x.index_fill_(0, torch.tensor([1]), 2.0),
        lambda x: x.diagonal().add_(1), lambda x: x.masked_fill_(x > 0, 0.0),
        lambda x: x.__setitem__((0, slice(1, 3)), 7.0), lambda x: x.clamp_(0, 1),
    ],
)
def test_writes_into_an_input(write):
    def program(x):
        before = x * 2
        write(x)
        after = x + 1
        write(x)
        return before, after, x

    check(program, torch.randn(4, 5))
    check(program, torch.randn(5, 4).t())
    check(program, torch.randn(6, 7)[1:5, 1:6])


def test_writes_into_temporaries():
    def program(x):
        y = x * 1
        view = y[1:]
        y.add_(1)
        view.mul_(2)
        z = torch.zeros_like(y)
        z[0] = y.sum(0)
        z[1:] += view
        return y, z, view

    check(program, torch.randn(4, 5))


def test_a_buffer_of_a_module_is_written():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x * self.count

    mine, theirs = Counter(), Counter()
    compiled = framejit.optimize(mine)
    x = torch.randn(4)
    for _ in range(5):
        torch.testing.assert_close(compiled(x), theirs(x))
    assert mine.count == theirs.count == 5


# ---- sizes of programs ----


def test_many_inputs():
    tensors = [torch.randn(6) for _ in range(100)]
    check(
        lambda *tensors: (sum(tensors), torch.stack(tensors).sum(0), torch.cat([t * 2 for t in tensors])), *tensors,
        rtol=1e-5, atol=1e-5,
    )


def test_a_deep_chain_of_operations():
    def chain(x):
        for step in range(500):
            x = x.sin() + step * 0.001 if step % 3 else x * 1.01 - x.cos()
        return x

    compiled, graphs = planned(chain)
    x = torch.randn(100)
    started = time.perf_counter()
    got = compiled(x)
    assert time.perf_counter() - started < 60
    assert not graphs[0].reason
    assert not graphs[0].externs
    exact = chain(x.double())
    assert (got - exact).abs().max() <= 4 * (chain(x) - exact).abs().max() + 1e-5


def test_one_value_used_many_times():
    def tree(x):
        for _ in range(40):  # as a tree it would have 2**40 nodes
            x = x + x.sin()
        return x * 1e-3

    compiled, graphs = planned(tree)
    x = torch.rand(16)
    torch.testing.assert_close(compiled(x), tree(x), rtol=1e-4, atol=1e-5)
    assert not graphs[0].reason


def test_many_results():
    check(lambda x: tuple(x * k for k in range(100)), torch.randn(7))


# ---- models and modes ----


def test_convolution_norm_and_relu_in_place():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Conv2d(8, 4, 1), nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
    ).eval()
    with torch.no_grad():
        check(model.forward, torch.randn(2, 3, 9, 9), atol=1e-5, rtol=1e-5)


def test_batch_norm_in_training_updates_its_statistics():
    torch.manual_seed(0)
    mine, theirs = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    compiled, x = framejit.optimize(mine), torch.randn(4, 3, 5, 5) * 3 + 1
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(compiled(x), theirs(x))
    torch.testing.assert_close(dict(mine.named_buffers()), dict(theirs.named_buffers()))


MIXED = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: MIXED(x), lambda x: (x @ x, (x @ x).float() + x), lambda x: torch.einsum("ij,jk->ik", x, x),
        lambda x: torch.tensordot(x, x, 1),
        lambda x: nn.functional.softmax(x @ x, -1) * 2,
        lambda x: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
        lambda x: torch.cdist(x, x).relu(), lambda x: nn.functional.mse_loss(x @ x, x),
        lambda x: torch.cat([x @ x, x @ x]) * 2,
    ],
)
@pytest.mark.parametrize("where", ["outside", "inside", "off inside", "on and off"])
def test_autocast(body, where):
    def inside(x):
        with torch.autocast("cpu", torch.bfloat16):
            return body(x)

    def off_inside(x):
        with torch.autocast("cpu", enabled=False):
            return body(x * 2), x @ x

    def on_and_off(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = body(x)
            with torch.autocast("cpu", enabled=False):
                return y, body(x)

    program = {"outside": body, "inside": inside, "off inside": off_inside, "on and off": on_and_off}[where]
    x = torch.randn(8, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=where in ("outside", "off inside")):
        check(program, x, atol=0.05, rtol=0.05)


def test_autocast_whose_weights_were_cast_before():
    """The cache of autocast knows the weight already when the graph is captured."""
    linear, x = nn.Linear(8, 8), torch.randn(2, 8)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = linear(x).relu()
        compiled, graphs = planned(lambda x: linear(x).relu())
        torch.testing.assert_close(compiled(x), expected)
        torch.testing.assert_close(compiled(x), expected)
    assert not graphs[0].reason


def test_inference_mode():
    with torch.inference_mode():
        x = torch.randn(4, 4)
        check(lambda x: (x.sin() + 1, x.t() * 2, x.softmax(-1)), x)
    compiled, _ = planned(lambda x: x.sin() + 1)
    with torch.inference_mode():
        assert compiled(torch.randn(3)).is_inference()
    assert not compiled(torch.randn(3)).is_inference()


def test_gradients_are_right():
    def program(x, w):
        return (x @ w).relu().softmax(-1).square().sum()

    compiled, graphs = planned(program)
    x, w = torch.randn(4, 5), torch.randn(5, 3, requires_grad=True)
    mine, theirs = (torch.autograd.grad(f(x, w), w)[0] for f in (compiled, program))
    torch.testing.assert_close(mine, theirs)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, w), program(x, w))
    assert [bool(graph.reason) for graph in graphs] == [False, False]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.detach() * 2, x.detach(), x.detach()[1:], x.detach().t()),
        lambda x: (x.argmax(1), x > 0, x.detach().matmul(x.detach())),
        lambda x: torch.no_grad()(lambda: (x @ x).relu() * 2)(),
    ],
)
def test_results_without_gradients_of_inputs_with_gradients(program):
    x = torch.randn(4, 4, requires_grad=True)
    compiled, graphs = planned(program)
    expected = program(x)
    for _ in range(2):
        got = compiled(x)
        torch.testing.assert_close(got, expected)
        flat = got if isinstance(got, tuple) else (got,)
        assert not any(result.requires_grad for result in flat)
        assert torch.is_grad_enabled()
    assert not graphs[0].reason


def test_a_detached_view_may_be_written():
    compiled, _ = planned(lambda x: (x.detach()[1:], x.detach() * 2))
    x = torch.randn(4, requires_grad=True)
    view, _ = compiled(x)
    view.add_(1)
    assert view.data_ptr() == x[1:].data_ptr()


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: nn.functional.dropout(x, 0.5), lambda x: torch.rand_like(x) + x, lambda x: torch.randn(4, 4) * x,
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: (torch.randperm(4), torch.randint(0, 9, (4,)), torch.rand(4)), lambda x: (x + 1).normal_(),
        lambda x: x.softmax(-1).multinomial(2),
        lambda x: (torch.rand(3), x.sin(), torch.randn(3)), lambda x: nn.functional.gumbel_softmax(x),
        lambda x: torch.rand(3) * 0 + x[0, :3],
    ],
)
def test_random_numbers_are_those_of_eager(draw):
    x = torch.randn(4, 4)
    check(draw, x)
    compiled, _ = planned(draw)
    for f in (draw, compiled):  # what is drawn afterwards
        torch.manual_seed(1)
        f(x)
        following = torch.rand(3) if f is draw else torch.equal(torch.rand(3), following)  # noqa: F821
    assert following


# ---- dtypes that kernels do not have ----


def test_views_in_another_dtype():
    x = torch.randn(4, 8)
    check(
        lambda x: (
            (x + 1).view(torch.int32) & 0x7FFFFFFF, x.view(torch.int32) + 1, (x * 2).view(torch.int16),
            x.view(torch.uint8)[:, ::4],
        ),
        x,
    )


def test_complex_numbers():
    z = torch.randn(4, 4, dtype=torch.complex64)
    check(lambda z: (z * 2, z + z, z.real + 1, z.imag * 2, z.abs() + 1, z @ z, torch.view_as_real(z) * 2), z)


def test_lazy_conjugates_and_negatives():
    z = torch.randn(4, dtype=torch.complex64)
    compiled, graphs = planned(lambda x: (x + 1, x.conj(), torch.view_as_real(x * 2)))
    torch.testing.assert_close(compiled(z.conj())[0], z.conj() + 1)
    assert "conjugate" in graphs[0].reason
    x = z.conj().imag
    assert x.is_neg()
    compiled, _ = planned(lambda x: x + 1)
    torch.testing.assert_close(compiled(x.resolve_neg()), x + 1)
    torch.testing.assert_close(compiled(x), x + 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(4, 4).relu().to_sparse(),
        lambda: torch.randn(4, 4).relu().to_sparse_csr(),
        lambda: torch.randn(4, 4).to_mkldnn(),
    ],
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_other_layouts_run_as_aten(make):
    x, y = make(), torch.randn(4, 4)
    program = (lambda x, y: (torch.sparse.mm(x, y) + 1)) if not x.is_mkldnn else (lambda x, y: x.to_dense() + y)
    torch.testing.assert_close(framejit.optimize(program)(x, y), program(x, y))


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_run_as_aten():
    x = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8)
    program = lambda x: x.dequantize() * 2 + 1  # noqa: E731
    torch.testing.assert_close(framejit.optimize(program)(x), program(x))


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.complex32, torch.complex128],
)
def test_rare_dtypes(dtype):
    x = torch.arange(6).to(dtype)
    warned_of = dtype is torch.complex32
    check(
        lambda x: (x.to(torch.float64 if not x.is_complex() else torch.complex128) + 1, x.clone(), x[1:]),
        x,
        refused=warned_of,
    )


def test_numbers_of_the_cpu_among_tensors():
    x, s = torch.randn(4), torch.tensor(3)
    check(lambda x, s: (x * s, x ** s, x + s.item() if False else x, torch.where(x > s, x, s), x.clamp(max=s)), x, s)
    assert copies((x, s))[1].dim() == 0
