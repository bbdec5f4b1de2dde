"""Generated kernels compute what torch does: in Triton's interpreter, on CPU tensors."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("triton")
import tests.fuse.triton_kernels.triton_scan_cases  # noqa: F401  (adds its cases)
from tests.fuse.triton_kernels.triton_cases import CASES  # noqa: E402

HERE = pathlib.Path(__file__).parent


@pytest.fixture(scope="module")
def failures() -> dict[str, list[str]]:
    """For each case what went wrong. One program runs them all: the interpreter is chosen before Triton is imported."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(HERE.parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "triton_interpreted.py")], env=environment, capture_output=True,
        text=True, timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(CASES))
def test_kernel_computes_what_torch_does(name: str, failures: dict[str, list[str]]) -> None:
    assert not failures[name], "\n".join(failures[name])[-6000:]
