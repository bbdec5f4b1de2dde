"""What operations give where sizes are left open: the values, views and errors that eager gives."""

from __future__ import annotations

import time

import pytest
import torch
import torch.nn.functional as F

import framejit

from comparison import assert_same
from support import Pair


def test_a_graph_that_autograd_has_to_see_is_looked_at_once():
    linear = torch.nn.Linear(4, 3)

    def many(x):
        results = [linear(x)]
        for _ in range(40):
            results.append(results[-1].sin())
        return results

    fast = framejit.optimize(many, dynamic=True)
    for n in (3, 4, 5, 5, 6, 6):
        x = torch.randn(n, 4)
        sum(result.sum() for result in fast(x)).backward()
        got, linear.weight.grad = linear.weight.grad, None
        sum(result.sum() for result in many(x)).backward()
        assert_same(linear.weight.grad, got)
        linear.weight.grad = None
    [graph] = framejit.inspect(fast).graphs
    assert "gradients meet at 41 places" in graph.reason


def test_what_operations_give_on_symbolic_sizes_is_known_and_right():
    """Operations are repeated on sizes that turn out to be equal, and with other arguments."""

    def f(x, y):
        for k in range(3):
            x = F.gelu(x).sum(1, keepdim=True) + x * k
            y = torch.cat([x, y], 1).softmax(-1)[:, : x.shape[1]]
            x = x + y if k else x + y.mean()
        a, b = x.max(1)
        sums = x.to(torch.float64).sum(0, dtype=torch.float32), x.var(1), (x > 0.5).any(1)
        return sums, a, b, x.contiguous() is x, x.clone().fill_(2), torch.rand_like(x).shape

    for backend in ("eager", "fuse"):
        fast = framejit.optimize(f, backend=backend, dynamic=True)
        for n in (5, 7, 40):
            x, y = torch.randn(3, n), torch.randn(3, n)
            assert_same(f(x, y), fast(x, y), atol=1e-5, rtol=1e-4)
        assert len(fast.entries) == 1


@pytest.mark.parametrize(
    "make",
    [lambda x: torch._neg_view(x), lambda x: torch.complex(x, x).conj().imag, lambda x: torch.complex(x, x).conj()],
    ids=["negated", "imaginary part", "conjugated"],
)
def test_views_that_only_change_signs(make):
    """A graph whose other sizes are symbolic, and that is compiled for each of them."""

    def fn(x, y):
        return x * 2 + y, x.t().contiguous() + 1

    compiled = framejit.optimize(fn, backend="fuse")
    for n in (3, 4, 5):
        compiled(torch.rand(2, n), torch.rand(2, n))
        x, y = make(torch.rand(2, n)), torch.rand(2, n)
        assert_same(fn(x, y), compiled(x, y), atol=1e-6)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "drop",
    [
        lambda x: F.dropout(x, 0.5, training=False),
        lambda x: torch.dropout(x, 0.0, False),
        lambda x: F.dropout(x[:0], 0.5),
    ],
)
def test_dropout_with_nothing_to_do_returns_its_argument(drop, backend):
    def fn(x):
        made = x * 2
        dropped = drop(made)
        return made, dropped, dropped is made, drop(x) is x

    compiled = framejit.optimize(fn, backend=backend, dynamic=True)
    for n in (4, 5, 6):
        x = torch.randn(n, 3)
        expected, got = fn(x), compiled(x)
        assert expected[2:] == got[2:] and (expected[0] is expected[1]) == (got[0] is got[1])
        assert_same(expected[:2], got[:2])


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("is_used", [False, True])
@pytest.mark.filterwarnings("error::framejit.FramejitWarning")
def test_a_view_that_reaches_past_a_smaller_tensor_raises(backend, is_used):
    def fn(y):
        row = (y * 2)[0].clone()
        part = row.as_strided((2, 2), (0, 1), 1)
        return (row, part + 1) if is_used else row

    compiled = framejit.optimize(fn, backend=backend, dynamic=True)
    for n in (8, 6, 2, 5):
        y = torch.arange(float(n * n)).view(n, n)
        outcomes = []
        for call in (fn, compiled):
            try:
                outcomes.append([t.tolist() for t in (call(y) if is_used else [call(y)])])
            except RuntimeError as e:
                outcomes.append(type(e))
        assert outcomes[0] == outcomes[1]


PLACED = {
    "overlapping rows": lambda x: x.as_strided((2 * x.shape[0] - 1, x.shape[1] // 2), (x.stride(0) // 2, 1)) + 1,
    "windows": lambda x: x.as_strided((x.numel() - 2, 3), (1, 1)),
    "a diagonal that is written": lambda x: (x.as_strided((x.shape[0],), (x.stride(0) + x.stride(1),)).zero_(), x * 2),
    "a copy": lambda x: torch.as_strided_copy(x, (x.shape[0],), (x.stride(0),)) * 2,
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", PLACED)
def test_a_view_of_an_input_that_lies_within_it_is_in_the_graph(name, backend):
    fn = PLACED[name]
    compiled = framejit.optimize(fn, backend=backend, fullgraph=True, dynamic=True)
    for n, m in ((3, 8), (5, 6), (4, 12)):
        x = torch.arange(float(n * m)).view(n, m)
        mine = x.clone()
        assert_same((fn(x), x), (compiled(mine), mine))
    assert len(compiled.entries) == 1


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", ["longer", "negative size", "negative stride"])
@pytest.mark.filterwarnings("error::framejit.FramejitWarning")
def test_a_view_of_an_input_that_its_sizes_do_not_allow_is_as_in_eager(name, backend):
    """Of a part of a longer tensor it is a view all the same, and elsewhere it raises."""
    sizes, strides = {
        "longer": (lambda n, m: (3, m), lambda n, m: (m, 1)),
        "negative size": (lambda n, m: (n - 4, m), lambda n, m: (m, 1)),
        "negative stride": (lambda n, m: (n, 2), lambda n, m: (m, n - 5)),
    }[name]

    def fn(x):
        return x.as_strided(sizes(*x.shape), strides(*x.shape)) * 2

    compiled = framejit.optimize(fn, backend=backend)
    memory = torch.arange(50.0)
    for n in (5, 6, 2, 4, 3, 7):
        for x in (torch.arange(n * 4.0).view(n, 4), memory[: n * 4].view(n, 4)):
            outcomes = []
            for call in (fn, compiled):
                try:
                    outcomes.append(call(x).tolist())
                except RuntimeError as e:
                    outcomes.append(str(e).partition("\n")[0])
            assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_what_is_written_before_a_view_that_reaches_past_its_storage_is_written_once(backend):
    """The piece that the view is of has one element, and no size of its own says how long its storage is."""

    def fn(y):
        y.detach().add_(1)
        z = y * 2
        last = z.split(1)[-1]
        last.sub_(z.sum())
        try:
            last.as_strided((2,), (1,))[...] = 5
            z = z + 1
        except RuntimeError as e:
            return y, z, str(e)
        return y, z

    def inside(y):
        first = (y * 2).split(1)[0]
        y.add_(1)
        first.as_strided((4,), (1,)).mul_(3)
        return y, first

    for program in (fn, inside):
        compiled = framejit.optimize(program, backend=backend)
        for n in (5, 5, 4, 6, 3, 8):
            y = torch.arange(float(n))
            mine, outcomes = y.clone(), []
            for call, given in ((program, y), (compiled, mine)):
                try:
                    outcomes.append(call(given))
                except RuntimeError as e:
                    outcomes.append(str(e))
            assert_same(*outcomes)
            assert_same(y, mine)


COMPOSITES = {
    "where a number": lambda x: torch.where(x > 0, x, 0),
    "where two numbers": lambda x: torch.where(x > 0, 1, 0),
    "multiply": lambda x: x.multiply(2),
    "divide": lambda x: x.divide(3, rounding_mode="floor"),
    "clip": lambda x: x.clip(0, 1),
    "greater": lambda x: x.greater(0),
    "and": lambda x: (x > 0) & (x < 1),
}


@pytest.mark.parametrize("name", COMPOSITES)
def test_composites_of_symbolic_sizes_with_dimensions_of_one_element(name):
    fn = COMPOSITES[name]
    for view in (lambda x: x.unfold(0, 1, 1), lambda x: x.t()[:, :, None], lambda x: x[:, 1:, None].transpose(1, 2)):
        compiled = framejit.optimize(lambda x, view=view: fn(view(x)), fullgraph=True, dynamic=True)
        for sizes in ((2, 4), (3, 4), (1, 4), (4, 5)):
            x = torch.randn(sizes)
            expected, got = fn(view(x)), compiled(x)
            assert (expected.stride(), expected.dtype) == (got.stride(), got.dtype), sizes
            torch.testing.assert_close(expected, got)


def test_a_slice_of_all_is_no_slice_to_autograd():
    def fn(x, y):
        return torch.cat([y, x])[:,]

    compiled = framejit.optimize(fn, fullgraph=True, dynamic=True)
    for sizes in ((2,), (5,), (4, 5), (3, 6)):
        found = []
        for f in (fn, compiled):
            x, y = (torch.ones(sizes).requires_grad_() for _ in range(2))
            out = f(x, y)
            out.sum().backward()
            shared = x.grad.untyped_storage().data_ptr() == y.grad.untyped_storage().data_ptr()
            found.append((out.grad_fn.name(), shared, x.grad.stride(), out._is_view()))
        assert found[0] == found[1]


PRODUCTS = {
    "of batches": (lambda x, y: x @ y, lambda n: ((2, n, 4), (2, 4, 3))),
    "of a vector": (lambda x, y: x @ y, lambda n: ((n,), (n, 3))),
    "with a vector": (lambda x, y: x @ y, lambda n: ((2, n, 3), (3,))),
    "repeated": (lambda x, y: torch.matmul(x, y), lambda n: ((3, 1, n, 4), (2, 4, n))),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x, y, y), lambda n: ((2, n, 4), (2, 3, 4))),
    "transposed": (lambda x, y: (x @ y).mT, lambda n: ((2, n, 4), (2, 4, 3))),
}


@pytest.mark.parametrize("requires_grad", (False, True))
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_views_where_eagers_are(name, requires_grad):
    function, sizes = PRODUCTS[name]
    compiled = framejit.optimize(lambda x, y: function(x, y), dynamic=True)
    for n in (3, 5, 6):
        x, y = (torch.randn(size, requires_grad=requires_grad) for size in sizes(n))
        expected, result = function(x, y), compiled(x, y)
        assert result._is_view() == expected._is_view() and result.stride() == expected.stride()
        torch.testing.assert_close(result, expected)
        if not expected._is_view():
            assert not result.detach_().requires_grad


def shifted_windows(x, window, shift):
    b, h, w, c = x.shape
    x = torch.roll(x, (-shift, -shift), (1, 2))
    x = x.view(b, h // window, window, w // window, window, c)
    parts = x.permute(0, 1, 3, 2, 4, 5).reshape(-1, window, window, c)
    x = (parts * 2).view(b, h // window, w // window, window, window, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
    return torch.roll(x, (shift, shift), (1, 2)), parts.shape


def test_windows_of_any_size_are_compiled_in_no_time():
    """The places that such views of views lead to are quotients in quotients."""
    compiled = framejit.optimize(shifted_windows)
    start = time.monotonic()
    for sizes, window, shift in (((2, 4, 4, 3), 2, 1), ((1, 6, 6, 3), 3, 0), ((1, 8, 6, 3), 2, 1)):
        x = torch.randn(sizes)
        assert_same(shifted_windows(x, window, shift), compiled(x, window, shift))
    assert time.monotonic() - start < 60


@pytest.mark.parametrize(
    "turn",
    [
        lambda y: y.t_(), lambda y: y.transpose_(0, 1), lambda y: y.swapaxes_(0, 1), lambda y: y.swapdims_(-1, 0),
        lambda y: y.unsqueeze_(1), lambda y: y.squeeze_(), lambda y: y.squeeze_(0), lambda y: y.squeeze_((0, 1)),
    ],
)
def test_results_laid_out_anew(turn):
    def f(x):
        y = x * 2
        view = y[:1]
        return turn(y), y, view

    pair = Pair(lambda: f, dynamic=True)
    for n in (5, 7, 40):
        pair.call(torch.randn(n, 3))
    pair.expect(graphs=1, breaks=0)


def test_spectrograms():
    window = torch.hann_window(16)

    def f(x):
        return torch.stft(x, 16, hop_length=4, window=window, return_complex=True).abs()

    pair = Pair(lambda: f, dynamic=True)
    for n in (64, 80, 100):
        pair.call(torch.randn(2, n))
    pair.expect(graphs=1, breaks=0)


def test_shapes_that_are_broadcast():
    def f(x, y):
        of_both = torch.broadcast_shapes(x.shape, (2, 1, 1), y.shape, x.shape[-1])
        return x.expand(of_both), of_both, torch._C._infer_size(x.shape, y.shape)

    pair = Pair(lambda: f, dynamic=True)
    for n in (5, 7, 40):
        pair.call(torch.randn(n, 3), torch.randn(n, 3))
    pair.expect(graphs=1, breaks=0)
    pair.call(torch.randn(4, 3), torch.randn(1, 3))
    pair.call(torch.randn(1, 3), torch.randn(6, 3))
    for shape in ((3, 4), (5, 3), (5, 2, 4, 3)):
        pair.call(torch.randn(4, 3), torch.randn(shape))
        assert pair.raised is (None if shape[-2:] == (4, 3) else RuntimeError)
    pair.expect(breaks=0)


def test_a_distribution_of_any_number():
    def f(mean, scale):
        base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros_like(mean), 1.0), 1)
        flow = torch.distributions.TransformedDistribution(base, [torch.distributions.AffineTransform(mean, scale)])
        return flow.log_prob(flow.rsample((3,)))

    pair = Pair(lambda: f, dynamic=True)
    for n in (5, 7, 40):
        pair.call(torch.randn(n, 4), torch.rand(n, 4) + 0.1)
    pair.expect(graphs=1, breaks=0)


@pytest.mark.parametrize("scale", [2, 1.5, 0.75, (2.0, 1.25)])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear", "nearest", "area"])
def test_images_of_any_size_are_scaled_by_one_graph(mode, scale):
    def fn(x):
        return torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode) * 2

    pair = Pair(lambda: fn, dynamic=True)
    for height, width in ((8, 8), (9, 8), (10, 12), (11, 13), (7, 5)):
        pair.call(torch.randn(1, 3, height, width))
    pair.expect(graphs=1, breaks=0)


@pytest.mark.parametrize("scale", [1.3, (0.6, 1.7)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_scale_that_no_ratio_of_sizes_is_assumes_them(mode, scale, requires_grad):
    """Torch's own rule divides a size that is known by then by a float."""

    def fn(x):
        return torch.nn.functional.interpolate(x, scale_factor=scale, mode=mode) * 2

    pair = Pair(lambda: fn, dynamic=True)
    for height, width in ((8, 8), (9, 8), (10, 12)):
        pair.call(torch.randn(1, 3, height, width, requires_grad=requires_grad))
    pair.expect(graphs=3, breaks=0)
