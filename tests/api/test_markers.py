"""`disable`, `graph_break`, `is_compiling`, `assume_constant` and `allow_in_graph`."""
import pytest
import torch

import framejit
from framejit.errors import GraphBreakError, InvalidTarget

from comparison import assert_same
from support import CountingBackend, of_kind, recorded

X = torch.arange(4.0)


@pytest.fixture
def backend():
    return CountingBackend()


def test_disable_keeps_a_function_out_of_graphs(backend):
    seen = []

    @framejit.disable
    def noted(x):
        seen.append(type(x))
        return x * 2

    fast = framejit.optimize(lambda x: noted(x + 1) - 1, backend=backend)
    for _ in range(2):
        assert torch.equal(fast(X), (X + 1) * 2 - 1)
    assert seen == [torch.Tensor] * 2
    assert backend.ops == 2


def test_disable_names_the_reason_of_the_break():
    @framejit.disable()
    def kept(x):
        return x * 2

    with recorded() as log:
        framejit.optimize(lambda x: kept(x + 1))(X)
    [broken] = of_kind(log, "graph_break")
    assert "disable" in broken.reason and "kept" in broken.reason


def test_disable_undoes_optimize(backend):
    @framejit.disable
    @framejit.optimize(backend=backend)
    def plain(x):
        return x + 1

    assert torch.equal(plain(X), X + 1)
    assert backend.graphs == []


def test_what_the_program_has_said_to_dynamo(backend):
    @torch.compiler.disable
    def kept(x):
        y = x * 2
        return y.sin()

    @torch.compiler.disable(recursive=False)
    def alone(x):
        return x.cos() + 1

    class Part:
        @torch.compiler.disable
        def method(self, x):
            return x.exp() * 3

    part = Part()
    with recorded() as log:
        fast = framejit.optimize(lambda x: part.method(alone(kept(x + 1) - 1) / 2) + 4, backend=backend)
        for _ in range(2):
            assert torch.equal(fast(X), (((X + 1) * 2).sin() - 1).cos().add(1).div(2).exp() * 3 + 4)
    reasons = [broken.reason for broken in of_kind(log, "graph_break")]
    assert len(reasons) == 3 and all("is marked @torch.compiler.disable" in reason for reason in reasons)
    assert backend.ops == 4 and {done.function for done in of_kind(log, "frame_done")}.isdisjoint(("kept", "alone"))


def test_what_a_function_of_torch_compile_is_called(backend):
    twice = torch.compile(lambda x: x.sin() * 2, backend="eager")
    with recorded() as log:
        assert torch.equal(framejit.optimize(lambda x: twice(x + 1) - 1, backend=backend)(X), (X + 1).sin() * 2 - 1)
    [broken] = of_kind(log, "graph_break")
    assert "is compiled by torch.compile" in broken.reason


@pytest.mark.parametrize("decorator", [framejit.disable, framejit.assume_constant, framejit.allow_in_graph])
def test_only_python_functions_can_be_marked(decorator):
    with pytest.raises(InvalidTarget, match="Python function"):
        decorator(torch.nn.Linear(2, 2))


def test_graph_break_splits_the_graph(backend):
    def f(x):
        x = x + 1
        framejit.graph_break()
        return x * 2

    assert torch.equal(framejit.optimize(f, backend=backend)(X), f(X))
    assert len(backend.graphs) == 2
    with pytest.raises(GraphBreakError):
        framejit.optimize(f, fullgraph=True)(X)


def test_graph_break_does_nothing_when_run():
    assert framejit.graph_break() is None


def test_is_compiling():
    assert framejit.is_compiling() is False

    def f(x):
        return x + 1 if framejit.is_compiling() else x - 1

    assert torch.equal(framejit.optimize(f)(X), X + 1)
    assert torch.equal(f(X), X - 1)

    from torch import _dynamo  # which takes seconds

    def g(x):
        return x + 1 if _dynamo.is_compiling() else x - 1

    assert torch.equal(framejit.optimize(g, fullgraph=True)(X), X + 1)
    assert torch.equal(g(X), X - 1)


def test_assume_constant(backend):
    @framejit.assume_constant
    def threshold():
        return float(torch.tensor([3.0]).item())

    def f(x):
        return x * threshold()

    fast = framejit.optimize(f, backend=backend, fullgraph=True)
    assert torch.equal(fast(X), X * 3)
    assert len(backend.graphs) == 1


def test_allow_in_graph(backend):
    @framejit.allow_in_graph
    def opaque(x):
        return x * 2 + 1

    fast = framejit.optimize(lambda x: opaque(x) - 1, backend=backend, fullgraph=True)
    assert torch.equal(fast(X), X * 2)
    [graph] = backend.graphs
    assert opaque in [node.target for node in graph.graph.nodes]


@pytest.mark.parametrize("handles", [False, True])
def test_what_a_library_does_for_a_compiler_only_raises_nothing(backend, handles):
    """As where a mask is made for calls that give none, but not for a compiler, which is to be given one."""
    def blocks(mask, size):
        return mask.view(-1, size)

    def f(x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones(x.shape)
        seen.append(mask is None)
        if handles:
            try:
                blocks(None, 2)
            except AttributeError as e:
                seen.append(str(e))
        return blocks(mask, 2) * x.view(-1, 2)

    results = []
    for fn in (f, framejit.optimize(f, backend=backend)):
        seen = []
        results.append(([fn(X), fn(X * 2), fn(X, torch.zeros_like(X))], seen))
    assert_same(*results)
    assert backend.graphs


def test_what_raises_in_plain_python_too_raises(backend):
    def f(x):
        return x + (1 if torch.compiler.is_compiling() else 2) if x.dim() else x.missing

    compiled = framejit.optimize(f, backend=backend)
    assert torch.equal(compiled(X), X + 1)
    for _ in range(2):
        with pytest.raises(AttributeError, match="missing"):
            compiled(X.sum())
