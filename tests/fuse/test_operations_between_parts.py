"""What stands before and behind an operation whose results fakes lay out otherwise than eager is compiled all the same,
with its gradients."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit

TABLE, OFFSETS = torch.linspace(-1, 1, 40).reshape(10, 4), torch.tensor([0, 4, 7])
BAGS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3])


@pytest.fixture(autouse=True)
def captured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framejit.config, "keep_captures", False)


def bags(mode: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    def fn(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        found = F.embedding_bag(indices % 10, table * 2, OFFSETS, mode=mode)
        return (found * 3).exp() + found.sum()

    return fn


def rows(table: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    weights = table[:, 0].sigmoid().reshape(2, 5)
    return F.embedding_bag(indices.reshape(2, 5), table.exp(), per_sample_weights=weights, mode="sum").tanh() * 2


PROGRAMS: list[tuple[Callable[..., Any], torch.Tensor]] = [
    (bags("mean"), TABLE), (bags("sum"), TABLE), (bags("max"), TABLE), (rows, TABLE),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize(("fn", "given"), PROGRAMS)
def test_parts_around_it_are_kernels(
    fn: Callable[..., Any], given: torch.Tensor, wanted: bool, dynamic: bool | None
) -> None:
    fast = framejit.optimize(fn, fullgraph=True, dynamic=dynamic)
    for _ in range(2):
        found = []
        for each in (fn, fast):
            leaf = given.clone().requires_grad_(wanted)
            result = each(leaf, BAGS)
            found.append((result.detach(), *(torch.autograd.grad(result.sum(), leaf) if wanted else ())))
            assert result.stride() == fn(leaf, BAGS).stride()
        torch.testing.assert_close(found[1], found[0])
    texts = [str(graph) for graph in framejit.inspect(fast).graphs]
    assert sum("kernel" in text for text in texts) >= 2 and not any("runs as ATen" in text for text in texts), texts
