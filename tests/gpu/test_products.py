"""Matrix products with few rows on a GPU: no further from float64 than eager is, on fresh inputs, alone and fused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, recall
from framejit.backends.fuse.backend import fuse_graph
from framejit.backends.fuse.targets.cuda import CudaTarget

pytestmark = pytest.mark.gpu

SLACK = {torch.bfloat16: 2**-8, torch.float16: 2**-11, torch.float32: 2**-20, torch.float64: 2**-48}


@pytest.fixture(autouse=True)
def all_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever is quicker, products of up to 16 rows are ours."""
    monkeypatch.setattr(CudaTarget, "multiplies", lambda self, rows, *_: rows <= 16)
    monkeypatch.setattr(CudaTarget, "norm_rows", 16)
    yield
    framejit.reset()


def compiled(f: Callable[..., Any], graphs: list[CompiledGraph]) -> Callable[..., Any]:
    """`f`, never eager instead because it measured quicker."""

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        made = fuse_graph(gm, examples)
        graphs.append(recall(made))
        return getattr(made, "compiled", made)

    return framejit.optimize(f, backend=backend)


def check(f: Callable[..., Any], *sizes: tuple[int, ...], dtype: torch.dtype, launches: int = 1) -> None:
    graphs: list[CompiledGraph] = []
    fast = compiled(f, graphs)
    for _ in range(3):
        inputs = [torch.randn(size, device="cuda", dtype=dtype) / size[-1] ** 0.25 for size in sizes]
        with torch.no_grad():
            results = [g(*x) for g, x in ((fast, inputs), (f, inputs), (f, [x.double() for x in inputs]))]
        for got, plain, exact in zip(*(x if isinstance(x, tuple) else (x,) for x in results)):
            assert (got.dtype, got.shape, got.stride()) == (plain.dtype, plain.shape, plain.stride())
            ours, theirs = ((x.double() - exact).norm() for x in (got, plain))
            assert ours <= max(1.05 * theirs, SLACK[dtype] * exact.norm()), (ours, theirs)
    [graph] = graphs
    assert len(graph.kernels) == launches and not graph.externs


@pytest.mark.parametrize("dtype", list(SLACK))
@pytest.mark.parametrize("rows", [1, 2, 3, 8, 13, 16])
@pytest.mark.parametrize(("inner", "columns"), [(2048, 2048), (2048, 256), (777, 1031), (5632, 2048), (64, 33)])
def test_product(rows: int, inner: int, columns: int, dtype: torch.dtype) -> None:
    check(F.linear, (rows, inner), (columns, inner), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [1, 5, 16])
def test_gate_and_residual(rows: int, dtype: torch.dtype) -> None:
    def gate(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return rest + F.silu(F.linear(x, one)) * F.linear(x, other)

    check(gate, (rows, 1024), (2816, 1024), (2816, 1024), (rows, 2816), dtype=dtype)


@pytest.mark.parametrize("rows", [1, 4, 16])
def test_weights_that_are_not_aligned(rows: int) -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(x[:, 1:513], weight[1:, 3:515])

    check(f, (rows, 600), (200, 520), dtype=torch.bfloat16)


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_projections_after_a_norm(rows: int) -> None:
    def f(x: torch.Tensor, scale: torch.Tensor, *weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = F.rms_norm(x, scale.shape, scale, 1e-5)
        return tuple(F.linear(h, weight) for weight in weights)

    check(f, (rows, 1024), (1024,), (2048, 1024), (256, 1024), (256, 1024), (77, 1024), dtype=torch.bfloat16)


def test_infinities_and_nans() -> None:
    fast = compiled(F.linear, [])
    for _ in range(2):
        x, weight = torch.randn(2, 64, device="cuda"), torch.randn(48, 64, device="cuda")
        x[0, 3], x[1, 5] = torch.inf, torch.nan
        assert torch.equal(fast(x, weight).isnan(), F.linear(x, weight).isnan())
        assert torch.equal(fast(x, weight).isinf(), F.linear(x, weight).isinf())
