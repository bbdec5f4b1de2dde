"""Functions that torch.func transforms become kernels: the operations below the transforms are recorded, with gradients
of their own, with sizes that are left open, and where forward-mode differentiation begins with zeros without memory."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.utils._pytree import tree_leaves

import framejit

Program = Callable[..., Any]
INF = float("inf")
X = torch.linspace(-1, 1, 24).reshape(4, 6)
W = torch.linspace(-0.5, 0.7, 36).reshape(6, 6)


@pytest.fixture(autouse=True)
def captured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framejit.config, "keep_captures", False)


def network() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))
    return net, {name: weight.detach() for name, weight in net.named_parameters()}


NET, WEIGHTS = network()
STACKED = {
    name: weights.detach() for name, weights in stack_module_state([network()[0] for _ in range(3)])[0].items()
}


def assert_fused(fn: Program, *calls: tuple[torch.Tensor, ...], **options: Any) -> None:
    """Each call gives what eager gives, and nothing is left to ATen as a whole."""
    fast = framejit.optimize(fn, fullgraph=True, **options)
    for args in calls:
        for _ in range(2):
            torch.manual_seed(1)
            expected = fn(*args)
            torch.manual_seed(1)
            found = fast(*args)
            torch.testing.assert_close(found, expected, equal_nan=True)
            for one, other in zip(tree_leaves(found), tree_leaves(expected), strict=True):
                assert (one.stride(), one.requires_grad) == (other.stride(), other.requires_grad)
    graphs = framejit.inspect(fast).graphs
    assert graphs and all("runs as ATen" not in str(graph) and "_part_" not in str(graph) for graph in graphs), graphs


def per_sample(x: torch.Tensor, w: torch.Tensor) -> Any:
    def loss(weights: dict[str, torch.Tensor], row: torch.Tensor) -> torch.Tensor:
        return functional_call(NET, weights, (row @ w,)).square().sum()

    return vmap(grad_and_value(loss), in_dims=(None, 0))(WEIGHTS, x)


def ensemble(x: torch.Tensor, w: torch.Tensor) -> Any:
    return vmap(lambda weights: functional_call(NET, weights, (x @ w,)))(STACKED)


def laplacians(x: torch.Tensor, w: torch.Tensor) -> Any:
    def field(row: torch.Tensor) -> torch.Tensor:
        return (row @ w).tanh().sum() * row.sum() * 2.0

    return vmap(lambda row: hessian(field)(row).trace())(x), vmap(grad(field))(x)


def jacobians(x: torch.Tensor, w: torch.Tensor) -> Any:
    def f(row: torch.Tensor) -> torch.Tensor:
        return (w @ row).softmax(0) * row

    return vmap(jacrev(f))(x), vmap(jacfwd(f))(x), jacrev(jacfwd(f))(x[0])


def products(x: torch.Tensor, w: torch.Tensor) -> Any:
    value, back = vjp(lambda a: (a @ w).sin(), x)
    _, push = linearize(lambda a: (a @ w).exp(), x)
    along = jvp(grad(lambda a: (a @ w).cos().sum()), (x,), (x * 2,))
    return value, back(x), back(value), push(x), along


def written_inside(x: torch.Tensor, w: torch.Tensor) -> Any:
    def f(row: torch.Tensor) -> torch.Tensor:
        made = row * 2
        made[0] = 0
        made.mul_(w[0])
        return made.sum()

    return vmap(grad(f))(x), vmap(f)(x)


def modes_inside(x: torch.Tensor, w: torch.Tensor) -> Any:
    def f(row: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = row.exp()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (scale * F.linear(row, w)).float().sum()

    return vmap(grad(f))(x)


def drawn(x: torch.Tensor, w: torch.Tensor) -> Any:
    same = vmap(lambda row: row + torch.rand(6), randomness="same")(x)
    return same, vmap(lambda row: F.dropout(row, 0.5) @ w, randomness="different")(x)


def classified(x: torch.Tensor, w: torch.Tensor) -> Any:
    targets = torch.tensor([1, 0, 5, 3])
    return vmap(grad(lambda row, target: F.cross_entropy(row @ w, target)))(x, targets)


def among_others(x: torch.Tensor, w: torch.Tensor) -> Any:
    return vmap(grad(lambda row: (row * w[1]).square().sum()))(x * 2).exp() + 1


PROGRAMS = [
    per_sample, ensemble, laplacians, jacobians, products, written_inside, modes_inside, drawn, classified,
    among_others,
]


@pytest.mark.parametrize("fn", PROGRAMS)
def test_kernels_are_made(fn: Program) -> None:
    assert_fused(fn, (X, W), (X + 1, W * 2))


@pytest.mark.parametrize("fn", [per_sample, laplacians, among_others])
def test_sizes_left_open(fn: Program) -> None:
    assert_fused(fn, (X, W), (torch.rand(7, 6), W), dynamic=True)


def meta_learned(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    def loss(weight: torch.Tensor) -> torch.Tensor:
        return (x @ weight).tanh().square().mean()

    return loss(w - 0.1 * grad(loss)(w))


def penalised(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    slopes = vmap(grad(lambda row: (row @ w).tanh().sum()))(x)
    return slopes.norm(dim=1).sub(1).square().mean()


def equation(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    def field(row: torch.Tensor) -> torch.Tensor:
        return (row @ w).sin().sum()

    return (vmap(hessian(field))(x).diagonal(dim1=1, dim2=2).sum(1) + vmap(field)(x)).square().mean()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn", [meta_learned, penalised, equation])
def test_gradients_go_through(fn: Program, dynamic: bool | None) -> None:
    fast = framejit.optimize(fn, fullgraph=True, dynamic=dynamic)
    for scale in (1, 2):
        found = []
        for each in (fn, fast, fast):
            x, w = (X * scale).requires_grad_(), W.clone().requires_grad_()
            each(x, w).backward()
            found.append((x.grad, w.grad))
        torch.testing.assert_close(found[1], found[0])
        torch.testing.assert_close(found[2], found[0])
    assert all("runs as ATen" not in str(graph) for graph in framejit.inspect(fast).graphs)


def test_zeros_without_memory_stay_zero_where_others_are_inf() -> None:
    def derivatives(x: torch.Tensor) -> Any:
        large = torch.full_like(x, INF)
        return (
            jvp(lambda a: (a * 0.5 * large, a + large * 2, large * torch.ones(6)), (x,), (x,)),
            jacfwd(lambda a: torch.stack([a[0] * INF, a[1] * 2, a[2] / a[3]]))(x),
        )

    assert_fused(derivatives, (X[0],), (X[3],))


@pytest.mark.parametrize("step", [torch.sgn, torch.sign, torch.round, torch.floor])
def test_derivatives_that_are_zeros_without_memory(step: Program) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return (step(1 / x) * x.exp()).t().sum(0) + step(x.log().t()).sum(0)

    found = []
    for each in (fn, framejit.optimize(fn)):
        x = torch.tensor([[0.0, 1.0, 2.0], [0.5, 0.3, 4.0]], requires_grad=True)
        found.append(torch.autograd.grad(each(x).sum(), x)[0])
    torch.testing.assert_close(found[1], found[0], equal_nan=True)


def test_a_function_that_pulls_back_is_used_in_a_loop_on_data() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        value, back = vjp(lambda a: (a @ w).tanh(), x)
        steps = 0
        while value.sum() < 40 and steps < 5:
            value = value + back(torch.ones_like(value))[0].abs()
            steps += 1
        return value

    fast = framejit.optimize(fn)
    for scale in (1, 3, 0.1):
        torch.testing.assert_close(fast(X * scale, W), fn(X * scale, W))


def test_the_threads_dispatch_keys_are_put_back_where_a_transform_fails_on_fakes() -> None:
    def fn(x: torch.Tensor) -> Any:
        return vmap(jacfwd(grad(lambda row: (row.sin() * row.sum()).sum() + torch.linalg.eigvals(W @ W).real[0])))(x)

    before = torch._C._dispatch_tls_local_exclude_set(), torch._C._dispatch_tls_local_include_set()
    torch.testing.assert_close(framejit.optimize(fn)(X), fn(X))
    assert (torch._C._dispatch_tls_local_exclude_set(), torch._C._dispatch_tls_local_include_set()) == before
    torch.testing.assert_close(jvp(torch.sin, (X,), (X,))[1], X.cos() * X)
