"""How many kernels ATen launches at least for a captured graph on a device; devices are fakes'."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.account.aten_launches import LAUNCH_NS, aten_launches
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.selecting import Choice, selector


class Faked(fx.Interpreter):
    """Notes of each node what it gives, as captured graphs do."""

    def run_node(self, n: fx.Node) -> Any:
        n.meta["val"] = super().run_node(n)
        return n.meta["val"]


def launches(function: Callable[..., Any], device: str = "cuda") -> int:
    gm = fx.symbolic_trace(function)
    with FakeTensorMode():
        Faked(gm).run(torch.empty(8, 4, device=device), torch.empty(5, 4, device=device))
    return aten_launches(gm)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, w: torch.nn.functional.linear(x, w).relu(), 2),
        (lambda x, w: x.t().reshape(-1).narrow(0, 3, 5), 1),  # which copies
        (lambda x, w: x.narrow(0, 1, 7).unsqueeze(0).expand(3, 7, 4), 0),
        (lambda x, w: (x.contiguous(), x.to(torch.float32), x.to(torch.float64)), 1),
        (lambda x, w: x.add_(1).mul_(2), 0),  # more are launched: it is the least
        (lambda x, w: torch.topk(x, 2)[0] + 1, 2),
        (lambda x, w: (torch.empty_like(x), x.new_empty(3)), 0),
        (lambda x, w: x.size(0), 0),
    ],
)
def test_results_in_memory_of_their_own_are_counted(function, count):
    assert launches(function) == count


def test_operations_of_the_processor_are_not():
    assert launches(lambda x, w: torch.nn.functional.linear(x, w).relu(), "cpu") == 0
    assert aten_launches(None) == 0


@pytest.mark.parametrize(("count", "waits"), [(0, False), (10, False), (1000, True)])
def test_eager_waits_only_where_its_first_run_is_long(count, waits):
    ran = []
    choice = Choice(pure=True, cuda=False, samples=3, aten_launches=count)
    slower = count * LAUNCH_NS / 1e9 + 2e-4

    def run() -> None:
        end = time.perf_counter() + slower
        while time.perf_counter() < end:
            pass

    made = selector(run, lambda: ran.append(1), choice, CompiledGraph("graph", lambda: None), None)
    for _ in range(6):
        made()
    assert bool(ran) != waits and (made.state == "measuring") == waits
