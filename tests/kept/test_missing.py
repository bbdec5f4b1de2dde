"""What is not kept yet, and should be."""

from __future__ import annotations

import pytest
from kept.processes import Run, one_folder


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


HEAD = "import torch\nnet = torch.nn.Linear(3, 3)\n"
MISSING = {
    "its graph holds the graph of a checkpoint, which is an object of this process": HEAD + """
from torch.utils.checkpoint import checkpoint
def target(x):
    return checkpoint(lambda y: torch.tanh(net(torch.tanh(net(y)))), x, use_reentrant=False)
args = (torch.ones(3),)
""",
    "with symbolic sizes forward and backward are variants": HEAD + """
import framejit
x = torch.ones(5, 3)
framejit.mark_dynamic(x, 0)
def target(x):
    return net(x).sum()
args = (x,)
""",
}


@pytest.mark.parametrize(
    "why", [pytest.param(why, marks=pytest.mark.xfail(strict=True, reason=why)) for why in MISSING]
)
def test_what_is_missing(why):
    assert Run(MISSING[why], backend="fuse").captured
    assert not Run(MISSING[why], backend="fuse").captured


@pytest.mark.xfail(strict=True, reason="what was computed from frozen weights is compared by their versions")
def test_frozen_weights():
    program = HEAD + """
def target(x):
    with torch.no_grad():
        return net(x)
args = (torch.ones(3),)
"""
    assert Run(program, backend="fuse", freeze=True).captured
    assert not Run(program, backend="fuse", freeze=True).captured
