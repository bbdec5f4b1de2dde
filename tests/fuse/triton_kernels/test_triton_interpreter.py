"""Generated kernels compute what torch does: in Triton's interpreter, on CPU tensors."""
from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("triton")
import tests.fuse.triton_kernels.triton_scan_cases  # noqa: F401  (adds its cases)
from tests.fuse.triton_kernels.interpreted import printed  # noqa: E402
from tests.fuse.triton_kernels.triton_cases import CASES  # noqa: E402


@pytest.fixture(scope="module")
def failures() -> dict[str, list[str]]:
    """For each case what went wrong. One program runs them all: the interpreter is chosen before Triton is imported."""
    return printed(Path(__file__).with_name("triton_interpreted.py"))


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", list(CASES))
def test_kernel_computes_what_torch_does(name: str, failures: dict[str, list[str]]) -> None:
    assert not failures[name], "\n".join(failures[name])[-6000:]
