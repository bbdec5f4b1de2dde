"""Programs with symbolic sizes equal eager at each size, and are captured once."""

from __future__ import annotations

import gc
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
