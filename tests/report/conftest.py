"""An explanation of a program with something in every section of the page."""
from __future__ import annotations

import pathlib
import sys

import pytest
import torch

import framejit
from framejit.events import emit
from framejit.findings.explanation import Explanation

sys.path.insert(0, str(pathlib.Path(__file__).parent))

HOSTILE = "</script><script>alert('1')</script>\"'&<b>"


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        h = torch.relu(self.linear(x))
        if h.sum() > 1000:
            h = h - 1
        for _ in range(2):
            h = h * 2 + torch.sigmoid(h)
        return h / h.max().repeat(17).tolist()[0]


def step(model, x):
    return model(x).mean()


@pytest.fixture
def explained() -> Explanation:
    """Two breaks, a recompile, graphs, guards and what a backend says of its kernels."""
    model, fast = Net(), framejit.optimize(step)
    explanation = Explanation()
    listening = explanation.listen()
    with framejit.config.patch(branch_operations=0):  # a short `if` breaks
        for size in (2, 3):
            fast(model, torch.randn(size, 4))
    graph_id = explanation.graphs[0].graph_id
    emit("fusion", graph_id=graph_id, graph="graph_1", text=f"k0: linear, relu {HOSTILE}", reason="")
    emit(
        "output_code", graph_id=graph_id, name="k0", language="LLVM", source=f"define void @k0() ; {HOSTILE}",
        kernel={"bytes": 4096, "GB/s": 12.5},
    )
    emit("perf", graph=f"step {HOSTILE}", compiled_us=10.0, eager_us=25.0, state="compiled")
    listening.stop()
    for finding in explanation.findings:
        finding.hint += HOSTILE
        finding.provenance += f"; {HOSTILE}"
    explanation.frames[0].reason = HOSTILE
    return explanation
