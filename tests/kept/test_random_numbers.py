"""Captures whose kernels make random numbers are kept: a second process captures nothing, and its numbers are those of
the first, forwards, backwards and where the graph is run again. On a CPU that says of itself that its kernels make
them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from kept.processes import PROGRAM, loaded, one_folder

import framejit
from framejit import events
from framejit.backends.fuse.targets.lookup import standing_in
from tests.making_cpu import MakingCpu

from support import seed


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[None]:
    own = framejit.config.patch(same_random_numbers=False)
    with standing_in("cpu", MakingCpu), own, one_folder(tmp_path / "cache"):
        yield


SOURCE = """
import torch
import torch.nn.functional as F

def target(x):
    return (F.dropout(x, 0.4) ** 3 + torch.rand_like(x) * x + torch.randn_like(x)).sum(-1)
"""


def first_order(fn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    out = fn(x)
    return [out.detach(), *torch.autograd.grad(out.sum(), x)]


def second_order(fn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    out = fn(x)
    (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    return [out.detach(), first.detach(), *torch.autograd.grad(first.sum(), x)]


def without(fn: Any, x: torch.Tensor) -> list[torch.Tensor]:
    return [fn(x.detach())]


def process(use: Any, x: torch.Tensor, **options: Any) -> tuple[list[torch.Tensor], bool]:
    """What the third call of a process of its own gives, and whether something was captured."""
    seen: list[events.Event] = []
    unsubscribe = events.subscribe(seen.append)
    try:
        fn = framejit.optimize(loaded(PROGRAM, SOURCE, "/nowhere/kept_program.py").target, backend="fuse", **options)
        for _ in range(3):
            seed(7)
            result = use(fn, x)
    finally:
        unsubscribe()
    return result, any(event.kind == "capture_started" for event in seen)


@pytest.mark.parametrize("use", [without, first_order, second_order])
def test_a_second_process_has_the_same_numbers(use: Any) -> None:
    x = torch.randn(9, 30, dtype=torch.float64, requires_grad=True)
    first, captured = process(use, x)
    assert captured
    second, captured = process(use, x)
    assert not captured
    torch.testing.assert_close(second, first)


@pytest.mark.parametrize("use", [without, first_order])
def test_what_draws_as_eager_is_kept_apart(use: Any) -> None:
    x = torch.randn(9, 30, dtype=torch.float64, requires_grad=True)
    made, _ = process(use, x)
    drawn, captured = process(use, x, options={"same_random_numbers": True})
    assert captured and not torch.equal(made[0], drawn[0])
    seed(7)
    torch.testing.assert_close(drawn, use(loaded(PROGRAM, SOURCE, "/nowhere/kept_program.py").target, x))
    for options, expected in (({"options": {"same_random_numbers": True}}, drawn), ({}, made)):
        again, captured = process(use, x, **options)
        assert not captured
        torch.testing.assert_close(again, expected)
