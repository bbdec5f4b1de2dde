"""Reductions over columns, split into parts as on a GPU, have eager's results, by Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

PROGRAM = Path(__file__).with_name("triton_columns.py")
ONES = [
    *(f"{kind}, {sizes}" for kind in ("moments", "sums") for sizes in ("even", "odd", "one image")),
    "moments far from zero", "moments with an outlier", "moments of what is not finite",
]


@pytest.fixture(scope="module")
def reports() -> dict[str, list[Any]]:
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(PROGRAM)], env=environment, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ONES)
def test_parts(name: str, reports: dict[str, list[Any]]) -> None:
    kernels, difference = reports[name]
    assert not difference
    assert kernels == (2 if name.startswith("moments") else 4), "they are not split, or gone through twice"
