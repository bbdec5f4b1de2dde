"""Numbers that replacement code, and guards, compute from the sizes of what they are given."""

from __future__ import annotations

from typing import Any

import torch

from framejit.guards.size_program import NUMBER
from framejit.symbols.expression import Expression, Symbol, evaluate

Place = tuple[int, bool]
"""A dimension, and whether its stride is meant; NUMBER where the value is the number itself or holds it."""


class ComputedSize:
    """Computes an expression over sizes: of each value that it is called with, one symbol's is read."""

    def __init__(self, expression: Expression, reads: tuple[tuple[Symbol, Place], ...]) -> None:
        self.expression, self.reads = expression, reads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComputedSize) and (self.expression, self.reads) == (other.expression, other.reads)

    def __hash__(self) -> int:
        return hash((self.expression, self.reads))

    def __call__(self, *values: Any) -> int:
        sizes = {symbol: read_size(value, place) for value, (symbol, place) in zip(values, self.reads)}
        number: int = evaluate(self.expression, sizes)
        return number


def read_size(value: Any, place: Place) -> int:
    """A size of a tensor, or its stride, or the number that a value is or holds, as `place` says."""
    dim, is_stride = place
    if dim == NUMBER:
        return int(value.item() if isinstance(value, torch.Tensor) else value)
    return int(value.stride(dim) if is_stride else value.size(dim))
