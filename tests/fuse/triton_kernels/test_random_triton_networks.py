"""Random networks, recorded, divided, lowered and scheduled as for training on a GPU: by Triton's interpreter they have
eager's results and gradients."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
from tests.fuse.triton_kernels.interpreted import interpreting  # noqa: E402

import forked  # noqa: E402

PROGRAM = Path(__file__).with_name("triton_random_networks.py")
COUNT = 60


def reported(first: int, count: int) -> dict[str, list[Any]]:
    """What became of each case and each of these networks, but for those that draw numbers."""
    done = forked.run(["-W", "ignore", PROGRAM, str(first), str(count)], env=interpreting(), timeout=580)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, list[Any]] = json.loads(done.stdout)
    return found


@pytest.mark.process
@pytest.mark.timeout(600)
def test_networks() -> None:
    reports = reported(0, COUNT)
    assert not {name: far for name, (_, far) in reports.items() if far}
    assert sum(name.startswith("network") for name in reports) > COUNT // 2
    assert sum(kernels > 1 for kernels, _ in reports.values()) > len(reports) // 2


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(1000, 2000, 200))
def test_more_networks(first: int) -> None:
    assert not {name: far for name, (_, far) in reported(first, 200).items() if far}
