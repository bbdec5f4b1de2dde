"""A function as it is and compiled by `fuse`, called with inputs that are equal and apart."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

import framejit

from support import seed


def leaf(*sizes: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*sizes, dtype=dtype).requires_grad_()


class Twins:
    """`fn(*inputs)`, or `fn(module, *inputs)` where there is a module, both ways."""

    def __init__(
        self, fn: Callable[..., Any], *inputs: Any, module: torch.nn.Module | None = None, fused: bool = True
    ) -> None:
        self.fn, self.fused = fn, fused
        self.compiled = framejit.optimize(fn, backend="fuse")
        given = [inputs if module is None else (module, *inputs) for _ in range(2)]
        self.inputs: list[Sequence[Any]] = [copy.deepcopy(each) for each in given]

    def both(self, use: Callable[..., Any], calls: int = 3) -> None:
        """What `use(fn, *inputs)` gives is compared, several times over; then whether the graphs were fused."""
        for number in range(calls):
            outcomes = []
            for fn, inputs in zip((self.fn, self.compiled), self.inputs):
                seed(number)
                try:
                    outcomes.append((use(fn, *inputs), None))
                except RuntimeError as e:
                    outcomes.append((None, str(e)))
            same(*outcomes)
        self.check_fused()

    def check_fused(self) -> None:
        reports = framejit.inspect(self.compiled).graphs
        assert reports
        reasons = [report.reason for report in reports]
        assert any(reasons) != self.fused, reasons


def same(expected: Any, got: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, torch.Tensor)
        facts = [(t.dtype, t.shape, t.stride(), t.requires_grad, t.is_leaf) for t in (expected, got)]
        assert facts[0] == facts[1], facts
        tolerance = 1e-9 if expected.dtype == torch.float64 else 1e-4
        torch.testing.assert_close(expected.detach(), got.detach(), rtol=tolerance, atol=tolerance)
    elif isinstance(expected, (list, tuple)):
        assert type(expected) is type(got) and len(expected) == len(got), (expected, got)
        for one, other in zip(expected, got):
            same(one, other)
    elif isinstance(expected, dict):
        same(list(expected.items()), list(got.items()))
    else:
        assert expected == got, (expected, got)
