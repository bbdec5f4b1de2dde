"""Random programs, lowered and scheduled as for a GPU, by Triton's interpreter as near to float64 as eager is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from tests.fuse.triton_kernels.interpreted import interpreting  # noqa: E402

import forked  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_random_programs.py")
COUNT = 80


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    done = forked.run(["-W", "ignore", PROGRAM, "0", str(COUNT)], env=interpreting(), timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(COUNT))
def test_random_program(seed: int, reports: dict[str, list[Any]]) -> None:
    _, _, far = reports[f"program {seed}"]
    assert not far


@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_programs_have_kernels(reports: dict[str, list[Any]]) -> None:
    assert sum(kernels > 1 for kernels, *_ in reports.values()) > COUNT // 2
