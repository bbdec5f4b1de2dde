"""Reductions over columns, split into parts as on a GPU, have eager's results, by Triton's interpreter; at the sizes of
models they compile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from framejit.backends.fuse.triton.kernel_source import TritonSource  # noqa: E402
from tests.fuse.triton_kernels.interpreted import printed  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_columns.py")
ONES = [
    *(f"{kind}, {sizes}" for kind in ("moments", "sums") for sizes in ("even", "odd", "one image")),
    "moments far from zero", "moments with an outlier", "moments of what is not finite",
]


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ONES)
def test_parts(name: str, reports: dict[str, list[Any]]) -> None:
    kernels, difference = reports[name]
    assert not difference
    assert kernels == 2, "they are not split, or gone through twice"


@pytest.mark.process
@pytest.mark.timeout(300)
def test_parts_are_put_together_in_one_order_of_memory(reports: dict[str, list[Any]]) -> None:
    sources = [
        TritonSource(**{**source, "signature": tuple(map(tuple, source["signature"]))}) for source in reports["sources"]
    ]
    summing = [source for source in sources if "tl.sum" in source.code]
    assert len(summing) == 8
    # Triton 3.6 fails on kernels that load the first elements of parts by columns and their sums by rows
    assert not any(kind == "*bf16" for source in summing[1::2] for _, kind, _ in source.signature)
    assert all(binary.cubin for binary in machine_code(sources))
