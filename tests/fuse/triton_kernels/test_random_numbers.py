"""Kernels make the random numbers that the graphs' operations give, and are machine code for sm_90."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import triton_source  # noqa: E402
from tests.fuse.lowering.cuda_graphs import scheduled_for_cuda  # noqa: E402
from tests.fuse.triton_kernels.interpreted import printed  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_random_numbers.py")
NAMES = [line.split('"')[1] for line in PROGRAM.read_text().splitlines() if line.startswith('    "') and '": (' in line]
APART = (
    "dropout of columns", "dropout of images", "sum of odd rows", "sum over rows", "dropout in a frame", "rand of one",
    "rand, float64", "randn, float64",
)
"""Cases in which neighbours of a block are not at neighbouring places."""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return printed(PROGRAM)


@pytest.mark.process
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_kernels(name: str, found: dict[str, Any]) -> None:
    sources = found[name]
    assert isinstance(sources, list), sources
    assert len(sources) >= 2 and all("philox_word" in source for source in sources)
    assert ("philox_words(" in sources[0]) != (name in APART), sources[0]


@pytest.mark.process
def test_there_are_cases() -> None:
    assert len(NAMES) >= 25


@pytest.mark.process
@pytest.mark.timeout(300)
def test_forward_and_backward() -> None:
    """Masks are made again in the backward: what is kept besides is a result of a tanh and of a softmax."""
    told = printed(PROGRAM.with_name("triton_random_training.py"))
    assert told["forward"].count("randint.low") == 1 and told["forward"].count("kernel") == 3
    assert not any("philox" in step or "dropout" in step or "rand" in step for step in told["backward"])
    assert sorted(told["kept"]) == [["torch.float32", 48 * 32]] * 2 + [["torch.int64", 1]]


COMPILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dropout": lambda x: F.dropout(x, 0.1),
    "dropout of a norm": lambda x: F.dropout(F.layer_norm(x, x.shape[-1:]), 0.1),
    "rand": torch.rand_like,
    "randn": torch.randn_like,
    "dropout of columns": lambda x: F.dropout(x.t(), 0.1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", COMPILED)
def test_machine_code(name: str, dtype: torch.dtype) -> None:
    steps = scheduled_for_cuda(COMPILED[name], torch.ones(64, 1024, dtype=dtype))
    kernels = [step for step in steps if isinstance(step, Kernel)]
    assert len(kernels) == 1 and [str(step.function) for step in steps if isinstance(step, ExternNode)] == [
        "aten.randint.low"
    ]
    (binary,) = machine_code([triton_source(kernels[0])])
    assert binary.cubin
