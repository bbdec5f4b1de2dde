"""What libraries' operations give, beside what fakes say: found by one call of each kind on zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import framejit
from framejit.backends.fuse.graph.execute import execute
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.origin import UNKNOWN
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.lowering import library_results
from framejit.backends.fuse.lowering.library_results import other_results

aten = torch.ops.aten
X, HALF = torch.ones(3, 4), torch.ones(3, 4, dtype=torch.float16)


def node(operation: Any, *args: Any, **kwargs: Any) -> Node:
    """A node with values that lie as these tensors do."""
    with FakeTensorMode() as mode:
        made: dict[int, torch.Tensor] = {}

        def faked(arg: Any) -> Any:
            return made.setdefault(id(arg), mode.from_tensor(arg)) if isinstance(arg, torch.Tensor) else arg

        fakes = [[*map(faked, arg)] if isinstance(arg, list) else faked(arg) for arg in args]
        result = operation(*fakes, **kwargs)
    values: dict[int, Value] = {}

    def valued(arg: Any) -> Any:
        if isinstance(arg, (tuple, list)):
            return type(arg)([*map(valued, arg)])
        return values.setdefault(id(arg), Value(arg)) if isinstance(arg, torch.Tensor) else arg

    return Node(operation, tuple(map(valued, fakes)), kwargs, valued(result), UNKNOWN)


def differing(*nodes: Node) -> list[str] | None:
    return other_results(nodes, lambda node: node.name == "exp", {})


def test_results_as_on_fakes() -> None:
    assert differing(
        node(aten.mm.default, X, X.t()), node(aten.exp.default, X), node(aten._fft_r2c.default, X, [1], 0, True),
        node(aten.sort.default, X), node(aten.index.Tensor, X, [torch.tensor([1, 2])]), node(aten.t.default, X),
    ) == []


@pytest.mark.parametrize("wrong", ["sizes", "dtype", "undefined"])
def test_results_that_differ(wrong: str) -> None:
    if wrong == "undefined":
        each = node(aten.native_layer_norm_backward.default, X, X, [4], X[:, :1], X[:, :1], X[0], X[0], [True] * 3)
        each.args = (*each.args[:-1], [True, False, True])
    else:
        each = node(aten.mm.default, X, X.t())
        (result,) = each.results
        result.shape, result.dtype = ((3, 5), result.dtype) if wrong == "sizes" else (result.shape, torch.float64)
    found = differing(node(aten.exp.default, X), each)
    assert found is not None and len(found) == 1 and "gives other results than on fakes" in found[0]


def test_what_is_ours_is_not_called() -> None:
    ours = node(aten.exp.default, X)
    ours.results[0].shape = (7,)
    assert differing(ours) == []


def masked() -> Node:
    each = node(aten.index.Tensor, X, [torch.tensor([1, 2, 0])])
    (place,) = each.args[1]
    place.dtype = torch.bool
    return each


ONLY_RUNNING_TELLS = {
    "a mask": masked,
    "a choice among nothing": lambda: node(aten.multinomial.default, X, 2),
    "no zeros": lambda: node(aten.linalg_cholesky_ex.default, X[:, :3], check_errors=True),
    "none of ATen's": lambda: node(
        torch.ops.prims.iota.default, 3, start=0, step=1, dtype=torch.int64, device="cpu", requires_grad=False
    ),
}


@pytest.mark.parametrize("name", ONLY_RUNNING_TELLS)
def test_what_only_running_tells(name: str) -> None:
    assert differing(ONLY_RUNNING_TELLS[name]()) is None


def test_nothing_comes_of_it() -> None:
    state = torch.get_rng_state()
    seen: list[Any] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **kwargs or {})

    drawing = node(aten.bernoulli.p, X, 0.5)
    writing = node(aten.copy_.default, X, HALF)
    with Watching():
        assert differing(drawing, writing) == []
    assert not seen and torch.equal(torch.get_rng_state(), state) and X.sum() == 12


def test_the_first_step_runs_no_operation_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only kernels and libraries run, from the first call on."""
    executed: list[Any] = []
    place = "framejit.backends.fuse.autograd_nodes.half.execute"
    monkeypatch.setattr(place, lambda *args, **kwargs: executed.append(1) or execute(*args, **kwargs))
    w = torch.randn(4, 4, requires_grad=True)
    norm = torch.nn.BatchNorm1d(4)
    plain = torch.nn.BatchNorm1d(4)

    def step(x: torch.Tensor, norm: torch.nn.Module) -> torch.Tensor:
        return (norm(x @ w).relu().softmax(-1) @ w.exp()).square().sum()

    compiled = framejit.optimize(step)
    for _ in range(3):
        x = torch.randn(8, 4)
        loss = compiled(x, norm)
        (found,) = torch.autograd.grad(loss, [w])
        wanted = step(x, plain)
        (expected,) = torch.autograd.grad(wanted, [w])
        torch.testing.assert_close((loss, found, norm.running_mean), (wanted, expected, plain.running_mean))
    assert not executed


def test_an_operation_that_differs_leaves_the_graph_to_aten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_results, "fits", lambda *_: False)
    w = torch.randn(4, 4, requires_grad=True)
    compiled = framejit.optimize(lambda x: (x @ w).relu().sum())
    for _ in range(3):
        x = torch.randn(8, 4)
        loss = compiled(x)
        (found,) = torch.autograd.grad(loss, [w])
        wanted = (x @ w).relu().sum()
        torch.testing.assert_close((loss, found), (wanted, torch.autograd.grad(wanted, [w])[0]))
    assert {report.state for report in framejit.inspect(compiled).graphs} == {"eager"}
