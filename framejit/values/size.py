"""A size that is not assumed: an int that is an expression over the sizes of inputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.guards.size_program import NUMBER
from framejit.symbols.expression import evaluate
from framejit.values.base import Value
from framejit.values.constant import ConstantValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame, Sizes

LARGEST: Final = 1 << 62
"""Greater ints are assumed: arithmetic on them would not be that of 64 bits."""
SIZE: Final = "framejit_size"
"""Marks, in `meta`, the nodes that compute sizes."""

_FOLLOWED = frozenset((operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.pos, min, max))
"""Functions of ints whose result is an expression again."""


class SizeValue(Value):
    """`size` is a torch.SymInt with a framejit node; `number` is the very int, where it is one that is read at a source."""

    def __init__(self, size: torch.SymInt, source: Source | None = None, number: int | None = None) -> None:
        self.size, self.source, self.number = size, source, number

    @property
    def sizes(self) -> Sizes:
        return self.size.node.conditions

    @property
    def symbolic(self) -> bool:
        return True

    def python_type(self) -> type:
        return int

    def describe(self) -> str:
        return f"int {str(self.size)!r}"

    def constant(self) -> Any:
        assumed = int(self.size)  # from here on
        return assumed if self.number is None else self.number

    def proxy(self) -> Any:
        return self.sizes.node(self.size.node.expression)

    def truth(self, tx: Frame) -> bool:
        return bool(self.size != 0)

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__index__", "__int__", "__pos__", "__trunc__", "__floor__", "__ceil__") and not args:
            return self
        return ConstantValue(self.constant()).call_method(tx, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        sizes = self.sizes
        expression = sizes.simplified(self.size.node.expression)
        symbols = sorted(dict.fromkeys(expression.symbols()), key=str)
        leaves = [sizes.leaves[symbol] for symbol in symbols]
        dims = [(leaf.dim, leaf.is_stride) for leaf in leaves]

        def compute(*inputs: Any) -> int:
            return evaluate(expression, {symbol: _read(*place) for symbol, place in zip(symbols, zip(inputs, dims))})

        cg.em.call_object(compute, lambda: [cg.em.load_source(leaf.source) for leaf in leaves], len(leaves))


def _read(value: Any, place: tuple[int, bool]) -> int:
    dim, is_stride = place
    if dim == NUMBER:
        return value
    return value.stride(dim) if is_stride else value.size(dim)


def plain_or_size(value: Value) -> Any:
    """A number as Python computes with it: a torch.SymInt for a size. None for what is no number."""
    if isinstance(value, SizeValue):
        return value.size
    if value.symbolic or not value.is_constant():
        return None
    number = value.constant()
    return int(number) if type(number) is bool else number if type(number) in (int, float) else None


def on_sizes(function: Callable[..., Any], *values: Value) -> Value | None:
    """`function` of numbers one of which is a size, as an expression or, for a comparison, its outcome; None where the sizes must be known."""
    from framejit.values.wrap import from_python

    if not any(isinstance(value, SizeValue) for value in values):
        return None
    numbers = [plain_or_size(value) for value in values]
    if any(number is None for number in numbers) or (function in _DIVISIONS and not numbers[1]):
        return None
    if function in _COMPARISONS or (function in _FOLLOWED and all(not isinstance(number, float) for number in numbers)):
        return from_python(function(*numbers))
    return None


_DIVISIONS = frozenset((operator.floordiv, operator.mod))
_COMPARISONS = frozenset((operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge))


