"""The forward's kernels are compiled while the backward is lowered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit
from framejit.backends.fuse.not_fusable import KernelFailed
from framejit.backends.fuse.training import halves
from framejit.config import config


def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).sigmoid() * 3).sum()


def both(function: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    w, x = torch.randn(4, 3, requires_grad=True), torch.randn(5, 4)
    loss = function(x, w)
    loss.backward()
    assert w.grad is not None
    return [loss.detach(), w.grad]


def told(order: list[str], fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it written down when kernels are begun and waited for; the compiler fails where `fails` says."""
    own = halves.begun_plan_record

    def begun(*args: Any) -> Any:
        made, name = own(*args), ("forward", "backward")[len(order)]
        order.append(name)

        def done() -> Any:
            order.append(f"{name} is done")
            if fails == name:
                raise KernelFailed("no such instruction")
            return made()

        return done

    monkeypatch.setattr(halves, "begun_plan_record", begun)


def test_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    told(order, "", monkeypatch)
    with config.patch(cache_size=0):
        torch.testing.assert_close(both(framejit.optimize(step)), both(step))
    assert order == ["forward", "backward", "backward is done", "forward is done"]


def test_a_backward_that_is_launched_knows_its_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though it is made before that."""
    made: list[Launched] = []

    class Launched:
        def __init__(self, plan: Any, parts: Any, recorder_of: Any, tell: Any, n_seen: Any, *forward: Any) -> None:
            self.plan, self.n_seen, self.forward = plan, n_seen, forward
            made.append(self)

        def __call__(self, *inputs: torch.Tensor) -> Any:
            return self.plan(*inputs)

        def consume(self, inputs: list[torch.Tensor]) -> Any:
            return self.plan.consume(inputs)

    monkeypatch.setattr(halves, "LaunchGraphs", Launched)
    monkeypatch.setattr(halves, "recorder_of", lambda device: device)
    with config.patch(cache_size=0):
        torch.testing.assert_close(both(framejit.optimize(step, mode="reduce-overhead")), both(step))
    backward, forward = made
    assert (forward.forward, forward.n_seen, backward.n_seen) == ((), 1, None)
    assert backward.forward[0]() is forward


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_a_half_that_fails(half: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told([], half, monkeypatch)
    compiled = framejit.optimize(step)
    with config.patch(cache_size=0), pytest.warns(match="no such instruction"):
        torch.testing.assert_close(both(compiled), both(step))
    torch.testing.assert_close(both(compiled), both(step))
