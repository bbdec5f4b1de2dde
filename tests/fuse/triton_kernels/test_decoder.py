"""A token of a decoder is few launches, none of them ATen's, and by Triton's interpreter as near to float64 as eager
is, in what it leaves in its caches, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from tests.fuse.triton_kernels.interpreted import cases_of, printed  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_decoder.py")
NAMES = cases_of(PROGRAM)
LAUNCHES = {"one layer": 10, "three layers": 24}
"""For each layer the projections with the norm before them, rotations, products of queries and keys, weighted sums, and
three products. Once the counters of caches, and in the first layer the norm apart."""


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_a_token(name: str, reports: dict[str, list[Any]]) -> None:
    launches, left, far = reports[name]
    assert not far
    assert left == ["_increment_version"] and launches == LAUNCHES[name]
