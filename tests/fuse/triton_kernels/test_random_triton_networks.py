"""Random networks, recorded, divided, lowered and scheduled as for training on a GPU, or with sizes left open: by
Triton's interpreter they have eager's results and gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from tests.fuse.triton_kernels.interpreted import interpreting  # noqa: E402

import forked  # noqa: E402

TRAINED = Path(__file__).with_name("triton_random_networks.py")
OF_ANY_LENGTH = Path(__file__).with_name("triton_random_symbolic.py")
COUNT = 60


def reported(program: Path, first: int, count: int) -> dict[str, list[Any]]:
    """What became of each of these networks, but for those that draw numbers."""
    done = forked.run(["-W", "ignore", program, str(first), str(count)], env=interpreting(), timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.process
@pytest.mark.timeout(600)
def test_networks() -> None:
    reports = reported(TRAINED, 0, COUNT)
    assert not {name: far for name, (_, far) in reports.items() if far}
    assert sum(name.startswith("network") for name in reports) > COUNT // 2
    assert sum(kernels > 1 for kernels, _ in reports.values()) > len(reports) // 2


@pytest.mark.process
@pytest.mark.timeout(600)
def test_networks_with_any_number_of_rows() -> None:
    reports = reported(OF_ANY_LENGTH, 0, COUNT)
    assert not {name: far for name, (_, far) in reports.items() if far}
    assert sum(variants > 0 for variants, _ in reports.values()) > COUNT // 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", [TRAINED, OF_ANY_LENGTH], ids=["trained", "any_length"])
@pytest.mark.parametrize("first", range(1000, 2000, 200))
def test_more_networks(first: int, program: Path) -> None:
    assert not {name: far for name, (_, far) in reported(program, first, 200).items() if far}
