"""Tensors that no graph computes with (nested, sparse, quantized): captured code holds them and passes them on."""

import pytest
import torch

import framejit

from comparison import assert_same
from support import ANY, Pair, check

X = torch.ones(3)
TENSORS = {
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
}
GLOBAL = None


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", TENSORS)
def test_they_pass_through(kind, monkeypatch):
    monkeypatch.setitem(globals(), "GLOBAL", TENSORS[kind]())

    class Box:
        pass

    def fn(x, given, box):
        box.kept = given
        held = {"a": [given, GLOBAL]}
        first, _ = held["a"]
        return x + 1, held, first is given, isinstance(given, torch.Tensor), box.kept is GLOBAL

    given = TENSORS[kind]()
    optimized = framejit.optimize(fn, backend="eager", fullgraph=True)
    for _ in range(2):
        box = Box()
        x, held, *rest = optimized(X, given, box)
        assert (
            held["a"][0] is given is box.kept
            and held["a"][1] is GLOBAL
            and rest == [True, True, False]
            and x.tolist() == [2.0] * 3
        )
    assert optimized(X, X, Box())[1]["a"][0] is X  # of another kind
    assert len(optimized.entries) <= 2


@pytest.mark.parametrize("kind", ["sparse", "quantized"])
def test_what_is_computed_with_them_breaks_the_graph(kind):
    def fn(x, given):
        y = x + 1
        dense = given.dequantize() if given.is_quantized else given.to_dense()
        return y + dense, given.shape, given.dtype

    check(fn, X, TENSORS[kind](), graphs=ANY, breaks=ANY)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["jagged", "nested"])
def test_operations_of_nested_tensors(kind):
    def fn(x, given):
        y = x.sum()
        z = given * 2
        return y + 1, [part.sum() for part in z.unbind()]

    optimized = framejit.optimize(fn, backend="eager")
    expected, (a, b) = fn(X, TENSORS[kind]())
    for _ in range(2):
        got, (c, d) = optimized(X, TENSORS[kind]())
        assert (got, c, d) == (expected, a, b)
    assert optimized.entries


class Wrapper(torch.Tensor):
    """A tensor whose operations are done in Python."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(arg.held if isinstance(arg, Wrapper) else arg for arg in args), **(kwargs or {}))


VIEWS = {
    "jagged": lambda: (TENSORS["jagged"]() * 2).values(),
    "nested": lambda: TENSORS["nested"]().unbind()[0],
    "jagged with gradients": lambda: (TENSORS["jagged"]().requires_grad_() * 2).values(),
    "sparse": lambda: TENSORS["sparse"]().coalesce().values(),
    "csr": lambda: TENSORS["csr"]().values(),
    "a wrapper": lambda: Wrapper(torch.ones(4))[:2],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", VIEWS)
def test_views_of_them(kind):
    """Plain tensors that autograd has as views of what no fake stands for: the graph breaks, and nothing goes wrong."""
    pair = Pair(lambda: lambda view, x: ((x * 2).sin(), view + 1))
    for _ in range(2):
        eager, ours = pair.eager(VIEWS[kind](), X), pair.compiled(VIEWS[kind](), X)
        assert_same(eager, ours)
    assert pair.graphs == 1
    compiled = framejit.optimize(lambda view: view + 1, backend="eager", fullgraph=True)
    with pytest.raises(framejit.errors.GraphBreakError):
        compiled(VIEWS[kind]())
