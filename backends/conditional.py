"""A node of a graph that runs one of two graphs: what a captured `torch.cond` becomes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch import fx

_numbers = count(1)


class Conditional:
    """The target of a graph's node for `torch.cond`: `conditional(pred, *operands)` runs one of two graphs on the
    operands and returns its results as a tuple."""

    def __init__(self, if_true: fx.GraphModule, if_false: fx.GraphModule) -> None:
        self.if_true, self.if_false = if_true, if_false
        self.__module__, self.__name__ = "torch_cond", f"cond_{next(_numbers)}"  # as it is called in the text of graphs

    def __call__(self, pred: torch.Tensor, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (self.if_true if pred else self.if_false).forward(*operands)


def branches(target: Any) -> Iterator[fx.GraphModule]:
    """The graphs that a node's target runs one of."""
    if isinstance(target, Conditional):
        yield from (target.if_true, target.if_false)
