"""Attention of few queries to keys that heads share: by Triton's interpreter as near to float64 as eager is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from tests.fuse.triton_kernels.interpreted import cases_of, printed  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_attention.py")
NAMES = cases_of(PROGRAM)
ATENS = ["scaled_dot_product_attention"]
LEFT = {
    "heads that are not shared": ATENS, "heads that torch shares": ATENS, "one tensor repeated": ATENS,
    "into a cache": ["index_copy.default", "index_copy.default"],
}
KERNELS = {"heads that are not shared": 0, "heads that torch shares": 0, "one tensor repeated": 1, "into a cache": 3}
"""Launches, where there are not two."""


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_attention(name: str, reports: dict[str, list[Any]]) -> None:
    kernels, left, far = reports[name]
    assert not far
    assert left == LEFT.get(name, []) and kernels == KERNELS.get(name, 2)
