"""Programs with symbolic sizes equal eager at each size, and are captured once."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse import backend as backend_module
from framejit.backends.fuse import fuse
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.plan.symbolic_plan import SymbolicPlan
from framejit.backends.symbolic_sizes import with_symbolic_sizes
from framejit.optimized_module import dispatcher_of

from comparison import assert_same

LINEAR, NORM, EMBEDDING = torch.nn.Linear(16, 32), torch.nn.LayerNorm(16), torch.nn.Embedding(50, 16)


def floats(*dims):
    return lambda n: torch.randn(*[n if d is None else d for d in dims])


def indices(*dims):
    return lambda n: torch.randint(0, 50, [n if d is None else d for d in dims])


def linear(x):
    return F.gelu(LINEAR(x))


def norm(x):
    return NORM(x).softmax(-1)


def embed(i):
    return EMBEDDING(i).mean(1)


def attention(x):
    b, s, d = x.shape
    q = x.view(b, s, 4, 4).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).reshape(b, s, d)


def positions(x):
    return x * torch.arange(x.shape[1], device=x.device)[None, :, None]


def causal(x):
    n = x.size(-1)
    return torch.where(torch.ones(n, n, dtype=torch.bool).tril(), x[:, None, :], float("-inf")).softmax(-1)


def joined(x, y):
    return torch.cat([x, y], 0), torch.stack([x, y]), len(x)


def halves(x):
    h = x.shape[0] // 2
    return x[:h] + 1, x[h:] - 1, x[-1], x[:h].shape


def loss(x):
    return F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)), x.numel(), x.sum() / x.numel()


def written(x):
    x.add_(1)
    x[0] = 0
    return x.shape[0]


def padded(x):
    z = x.new_zeros(x.shape[0] + 2, 4)
    z[1:-1] = x
    return z, F.pad(x, (0, 0, 1, 1))


def expanded(x):
    return x.unsqueeze(0).expand(3, -1, -1).reshape(-1, 4), x.repeat(2, 1)


def branches(x):
    if x.shape[0] > 1000:
        return x - 1
    return x + x.shape[0]


def bounded(x):
    k = min(x.shape[0], 4)
    return x.topk(k, dim=0).values, max(x.shape[0], 3), (x.shape[0] + 7) // 8 * 8


def means(x):
    return x.mean(0), x.var(0), x / x.shape[0], x.sum() * x.size(0)


def shapes(x):
    return (
        list(x.shape), tuple(x.shape) + (1,), (-1,) + x.shape[:1] + (3, 2), x.shape.numel(),
        x.shape == (x.shape[0], 4), int(x.shape[0]), {"n": x.size(0)},
    )


def strides(x):
    return x.stride(), x.t().stride(), x.t().contiguous().stride(), x.is_contiguous()


def einsum(x):
    return torch.einsum("ij,kj->ik", x, x)


def scanned(x):
    return x.cumsum(1).flip(1)


def broken(x):
    y = x * 2
    print(end="")
    return y.view(-1).sum() + x.shape[0]


def viewed(x):
    return x.view(x.shape[0], -1, 2).transpose(0, 1).contiguous().view(-1)


PROGRAMS = {
    linear: [floats(None, 16)],
    norm: [floats(None, 16)],
    embed: [indices(2, None)],
    attention: [floats(2, None, 16)],
    positions: [floats(2, None, 16)],
    causal: [floats(2, None)],
    joined: [floats(None, 4), floats(None, 4)],
    halves: [floats(None, 8)],
    loss: [floats(None, 8)],
    written: [floats(None, 4)],
    padded: [floats(None, 4)],
    expanded: [floats(None, 4)],
    branches: [floats(None, 4)],
    bounded: [floats(None, 6)],
    means: [floats(None, 6)],
    shapes: [floats(None, 4)],
    strides: [floats(None, 6)],
    einsum: [floats(None, 6)],
    scanned: [floats(2, None, 8)],
    broken: [floats(None, 4)],
    viewed: [floats(None, 4)],
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_one_entry_serves_all_sizes(function, backend):
    fast = framejit.optimize(function, backend=backend, dynamic=True)
    with torch.no_grad(), framejit.config.patch(debug=True):
        for n in (8, 12, 13, 30, 12, 8, 13):
            args = [make(n) for make in PROGRAMS[function]]
            copies = [arg.clone() for arg in args]
            expected, got = function(*args), fast(*copies)
            assert_same(expected, got, atol=1e-5, rtol=1e-4)
            assert_same(args, copies, atol=1e-5, rtol=1e-4)
    assert len(fast.entries) == 1


@pytest.mark.parametrize("size", [0, 1])
def test_small_sizes_are_compiled_for_themselves(size):
    fast = framejit.optimize(means, backend="eager", dynamic=True)
    for n in (8, size, 9, size):
        x = torch.randn(n, 6)
        assert_same(means(x), fast(x))
    assert len(fast.entries) == 2


def test_a_layout_that_does_not_follow_from_the_sizes_is_another_entry():
    fast = framejit.optimize(strides, backend="eager", dynamic=True)
    base = torch.randn(20, 12)
    for x in (
        torch.randn(8, 6), base[:8, :6], base[:9, :6], torch.randn(9, 6), torch.randn(6, 8).t(),
        torch.randn(6, 9).t(),
    ):
        assert_same(strides(x), fast(x))
    assert len(fast.entries) == 3


def test_a_branch_on_a_size_is_an_assumption_on_its_outcome():
    def f(x):
        return x + 1 if x.shape[0] > 10 else x - 1

    fast = framejit.optimize(f, backend="eager", dynamic=True)
    for n in (4, 10, 11, 30, 7, 12):
        x = torch.randn(n)
        assert_same(f(x), fast(x))
    assert len(fast.entries) == 2


def test_sizes_that_have_to_agree_are_compared():
    fast = framejit.optimize(lambda x, y: x + y, backend="eager", dynamic=True)
    for n in (4, 5):
        assert fast(torch.ones(n), torch.ones(n)).shape == (n,)
    assert len(fast.entries) == 1
    assert fast(torch.ones(4), torch.ones(1)).shape == (4,)
    with pytest.raises(RuntimeError, match="must match"):
        fast(torch.ones(4), torch.ones(5))


def test_a_loop_over_a_size_assumes_it():
    def f(x):
        return sum(x[i] * i for i in range(x.shape[0]))

    fast = framejit.optimize(f, backend="eager", dynamic=True)
    for n in (3, 4, 3, 4):
        x = torch.randn(n, 2)
        assert_same(f(x), fast(x))
    assert len(fast.entries) == 2


def test_exceptions_are_those_of_eager():
    def f(x):
        return x.view(x.shape[0] // 4, 4)

    fast = framejit.optimize(f, backend="eager", dynamic=True)
    assert_same(f(torch.ones(8)), fast(torch.ones(8)))
    with pytest.raises(RuntimeError) as expected:
        f(torch.ones(6))
    with pytest.raises(RuntimeError) as got:
        fast(torch.ones(6))
    assert str(got.value) == str(expected.value)


def test_gradients():
    fast = framejit.optimize(means, backend="eager", dynamic=True)
    for n in (4, 6, 9):
        x = torch.randn(n, 6, requires_grad=True)
        y = x.detach().clone().requires_grad_(True)
        for result in (fast(x), means(y)):
            sum(part.sum() for part in result).backward()
        assert_same(x.grad, y.grad)
    assert len(fast.entries) == 1


# ---- which dimensions are symbolic ----


def double(x):
    return x * 2


def test_after_some_sizes_of_a_dimension_it_is_left_open():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6, 7, 8, 9):
        assert fast(torch.ones(n, 3)).shape == (n, 3)
    assert len(fast.entries) == framejit.config.dynamic_after == 2
    assert sum("float32[*, 3]" in str(entry.tag.records) for entry in fast.entries) == 1
    assert fast(torch.ones(4, 5)).shape == (4, 5)  # another dimension is assumed as before


def test_never_by_itself_where_sizes_are_to_be_known():
    fast = framejit.optimize(double, backend="eager", dynamic=False)
    for n in (4, 5, 6, 7, 8):
        fast(torch.ones(n, 3))
    assert len(fast.entries) == 5


def test_mark_dynamic():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        framejit.mark_dynamic(x, 0)
        assert_same(x * 2, fast(x))
    assert len(fast.entries) == 1


def test_mark_dynamic_with_bounds():
    fast = framejit.optimize(lambda x: x.shape[0] < 100, backend="eager")
    x = torch.ones(8, 3)
    framejit.mark_dynamic(x, -2, min=4, max=64)
    assert fast(x) is True
    assert fast(torch.ones(64, 3)) is True and len(fast.entries) == 1  # that it is less than 100 goes without saying
    assert fast(torch.ones(65, 3)) is True and fast(torch.ones(3, 3)) is True and fast(torch.ones(200, 3)) is False
    assert len(fast.entries) == 3


def test_marks_of_dynamo_count():
    fast = framejit.optimize(double, backend="eager")
    for n in (4, 5, 6):
        x = torch.ones(n, 3)
        x._dynamo_dynamic_indices = {0}
        fast(x)
    assert len(fast.entries) == 1


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3, 0), {}), ((torch.ones(2), 1), {}), ((torch.ones(2), "a"), {}), ((torch.ones(2), 0), {"min": 1}),
        ((torch.ones(2), 0), {"min": 5, "max": 4}),
    ],
)
def test_mark_dynamic_refuses(arguments, options):
    with pytest.raises(framejit.errors.InvalidOption, match="mark_dynamic"):
        framejit.mark_dynamic(*arguments, **options)


def test_parameters_are_assumed():
    model = torch.nn.Linear(4, 4)
    fast = framejit.optimize(model, backend="eager", dynamic=True)
    for n in (2, 3, 4):
        fast(torch.ones(n, 4))
    (entry,) = dispatcher_of(fast).entries
    shapes = [record.text for record in entry.tag.records if record.text.startswith("tensor ")]
    assert any("float32[*, *]" in text for text in shapes) and any("float32[4, 4]" in text for text in shapes)


def test_a_custom_backend_sees_symbols_and_other_sizes():
    seen = []

    @with_symbolic_sizes
    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward

    def f(x):
        return x.view(x.shape[0] // 2, -1) + x.shape[0]

    fast = framejit.optimize(f, backend=backend, dynamic=True)
    for n in (4, 6, 8):
        x = torch.randn(n, 6)
        assert_same(f(x), fast(x))
    (gm,) = seen
    placeholder = next(iter(gm.graph.nodes))
    assert isinstance(placeholder.meta["val"].shape[0], torch.SymInt)
    assert any(node.target is torch.ops.aten.sym_size.int for node in gm.graph.nodes)
    gm.graph.lint()


def test_nothing_outlives_the_function():
    graphs = []

    @with_symbolic_sizes
    def backend(gm, inputs):
        graphs.append(weakref.ref(gm))
        return fuse(gm, inputs)

    fast = framejit.optimize(lambda x, n: means(x)[0] * n, backend=backend, dynamic=True)
    for n in (4, 6, 9):
        fast(torch.randn(n, 6), n)
    assert len(graphs) == 1
    del fast
    gc.collect()
    assert all(graph() is None for graph in graphs)


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


def refuses(*args):
    raise NotFusable("not today")


def test_a_graph_that_is_compiled_for_each_size_says_so(monkeypatch):
    def unless_symbolic(gm, inputs, keeps, conditions=None):
        return refuses() if conditions is not None else record_graph(gm, inputs, keeps)

    monkeypatch.setattr(backend_module, "record_graph", unless_symbolic)
    fast = framejit.optimize(means, dynamic=True)
    for n in (5, 7, 7, 7):
        x = torch.randn(n, 6)
        assert_same(means(x), fast(x), atol=1e-5, rtol=1e-4)
    assert [graph.name.split("_for_")[1] for graph in framejit.inspect(fast).graphs] == ["5_6", "7_6"]
    told = [event.reason for event in framejit.events.events() if event.kind == "fusion"]
    assert "compiled for each combination of sizes on its own: not today" in told


def test_sizes_for_which_no_plan_can_be_made_run_as_aten(monkeypatch):
    fast = framejit.optimize(means, dynamic=True)
    x = torch.randn(21, 7)  # odd, as y's are: of whole vectors there would be a variant
    fast(x)
    monkeypatch.setattr(SymbolicPlan, "plan_for", refuses)
    y = torch.randn(23, 7)
    with framejit.config.patch(debug=False), pytest.warns(framejit.FramejitWarning, match="not today"):
        for _ in range(4):
            assert_same(means(y), fast(y), atol=1e-5, rtol=1e-4)
    assert_same(means(x), fast(x), atol=1e-5, rtol=1e-4)


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
