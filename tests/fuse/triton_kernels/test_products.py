"""Matrix products with few rows are loops: by Triton's interpreter they are as near to float64 as eager is, with what
is fused into them; for the GPUs there are they compile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel  # noqa: E402
from framejit.backends.fuse.targets.cuda import CudaTarget  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import triton_source  # noqa: E402
from framejit.backends.fuse.triton.tiles.blocks import candidates  # noqa: E402
from tests.fuse.lowering.cuda_graphs import scheduled_for_cuda  # noqa: E402
from tests.fuse.triton_kernels.interpreted import cases_of, printed  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_products.py")
NAMES = cases_of(PROGRAM)
LEFT = {
    "no rows": ["linear"], "no columns": ["linear"], "nothing to sum": ["linear"],
    "decoder layer": ["index_copy.default", "index_copy.default"],
    "norm of what the product is added to": ["_increment_version"],
    "norm of what is written before": ["_increment_version"],
}
KERNELS = {
    "block": 2, "block of rows": 2, "two products on the way": 3, "norm that is returned": 2,
    "norm that is read twice": 2, "softmax before": 2, "projections of other lengths": 2, "one waits": 3,
    "written between": 2, "norm of what the product is added to": 2, "norm of what is written before": 3,
    "decoder layer": 7,  # q, k and v; two rotations; what stands for attention; its result; gate; down
}
"""Launches, where there is more than one."""


@pytest.fixture(autouse=True)
def all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is quick enough is another question."""
    monkeypatch.setattr(CudaTarget, "multiplies", lambda self, rows, *_: rows <= 16)
    monkeypatch.setattr(CudaTarget, "norm_rows", 16)


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
def test_sizes_and_dtypes(reports: dict[str, list[Any]]) -> None:
    linear = {name: report for name, report in reports.items() if name.startswith("linear ")}
    assert len(linear) >= 14
    assert all(report == [1, [], ""] for report in linear.values()), linear


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_product(name: str, reports: dict[str, list[Any]]) -> None:
    kernels, left, far = reports[name]
    assert not far
    assert left == LEFT.get(name, []) and kernels == KERNELS.get(name, 0 if left else 1)


def like(*sizes: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype)


def left_and_kernels(f: Callable[..., Any], *inputs: torch.Tensor) -> tuple[list[str], list[Kernel]]:
    """What ATen is left to do, and the kernels."""
    steps = scheduled_for_cuda(f, *inputs)
    left = [step.function.__name__ for step in steps if isinstance(step, ExternNode)]
    return left, [step for step in steps if isinstance(step, Kernel)]


@pytest.mark.parametrize(
    ("f", "inputs"),
    [
        (F.linear, (like(64, 2048), like(2048, 2048))),  # many rows
        (lambda x, w: x @ w, (like(1, 2048), like(2048, 2048))),  # columns of the matrix lie in pieces, not its rows
        (lambda x, w: x @ w, (like(1, 64, dtype=torch.int32), like(64, 64, dtype=torch.int32))),
        (F.linear, (like(1, 1 << 17), like(16, 1 << 17))),  # few and long rows
    ],
)
def test_other_products_are_left_to_aten(f: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> None:
    left, kernels = left_and_kernels(f, *inputs)
    assert len(left) == 1 and not kernels


def test_a_norm_is_done_by_the_programs_of_many_columns_too() -> None:
    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(F.rms_norm(x, (x.shape[-1],)), weight)

    assert [len(left_and_kernels(f, like(1, 64), like(columns, 64))[1]) for columns in (2048, 32000)] == [1, 1]


def test_sums_of_one_term_are_fused() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x @ y).cos(), torch.bmm(x, y).sin()

    left, kernels = left_and_kernels(f, like(2, 3, 1), like(2, 1, 40))
    assert not left and len(kernels) == 1


def test_a_norm_of_more_rows_has_a_launch_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def f(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.linear(F.rms_norm(x, (x.shape[-1],)), weight)

    assert [len(left_and_kernels(f, like(rows, 64), like(2048, 64))[1]) for rows in (1, 2)] == [1, 2]


def test_kernels_that_share_a_launch_compile() -> None:
    def f(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return F.linear(x, one), F.silu(F.linear(x, other))

    for rows in (1, 8):
        _, [kernel] = left_and_kernels(f, like(rows, 2048), like(2048, 2048), like(512, 2048))
        sources = [triton_source(kernel, tile=tile) for tile in candidates(kernel)]
        assert all(binary.cubin for binary in machine_code(sources))


@pytest.mark.parametrize("capability", [80, 90, 100])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_products_of_a_decoder_compile(rows: int, dtype: torch.dtype, capability: int) -> None:
    def gate(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return F.silu(F.linear(x, one)) * F.linear(x, other)

    def down(x: torch.Tensor, weight: torch.Tensor, rest: torch.Tensor) -> torch.Tensor:
        return rest + F.linear(x, weight)

    h, i = 2048, 5632
    sizes: list[tuple[Callable[..., Any], list[tuple[int, ...]]]] = [
        (gate, [(rows, h), (i, h), (i, h)]), (down, [(rows, i), (h, i), (rows, h)]),
    ]
    sources = []
    for f, shapes in sizes:
        left, [kernel] = left_and_kernels(f, *(like(*shape, dtype=dtype) for shape in shapes))
        assert not left
        sources += [triton_source(kernel, tile=tile) for tile in candidates(kernel)]
    assert all(binary.cubin for binary in machine_code(sources, capability))
