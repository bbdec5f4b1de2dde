"""What computes a number from sizes, as plain data and back."""

from __future__ import annotations

from typing import Any

from framejit.backends.fuse.cache.size_record import read_expression, written_expression
from framejit.guards.computed_size import ComputedSize
from framejit.symbols.expression import Symbol


def written_size(computed: ComputedSize) -> list[Any]:
    """The expression, and where each of its symbols is read."""
    numbers = {symbol: number for number, (symbol, _) in enumerate(computed.reads)}
    return [written_expression(computed.expression, numbers), [list(place) for _, place in computed.reads]]


def read_size(expression: list[Any], places: list[Any]) -> ComputedSize:
    """The computed size that `written_size` has written, with symbols of its own. Raises BadRecord for data that
    describes no size."""
    symbols = [Symbol(f"size{number}", 0) for number in range(len(places))]
    reads = zip(symbols, ((int(dim), bool(is_stride)) for dim, is_stride in places))
    return ComputedSize(read_expression(expression, symbols), tuple(reads))
