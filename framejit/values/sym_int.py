"""A size that is not assumed: an int that is an expression over the sizes of inputs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.guards.computed_size import ComputedSize
from framejit.signals import Unsupported
from framejit.symbols.expression import DataSymbol
from framejit.symbols.sym_node import expression_of
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.wrap import from_python, makes

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Codegen, Frame, Sizes

LARGEST: Final = 1 << 62
"""Greater ints are assumed: arithmetic on them would not be that of 64 bits."""
SIZE: Final = "framejit_size"
"""Marks, in `meta`, the nodes that compute sizes."""

_FOLLOWED = frozenset(
    (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.pos, min, max)
)
"""Functions of ints whose result is an expression again."""


class SymIntValue(Value):
    """`size` is a torch.SymInt with a framejit node; `number` is the very int, where it is one that is read at a
    source."""

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
        self.sizes.check_assumed(self.size.node.expression)
        assumed = int(self.size)  # from here on
        return assumed if self.number is None else self.number

    def proxy(self) -> Any:
        return self.sizes.node(self.size.node.expression)

    def truth(self, frame: Frame) -> bool:
        if self.is_of_data():
            raise _undecided(self)
        return bool(self.size != 0)

    def is_of_data(self) -> bool:
        return bool(self.size.node.expression.is_of_data)

    def children(self) -> Iterator[Value]:
        """The tensors that sizes in it are read from, where data decides these."""
        for symbol in dict.fromkeys(self.size.node.expression.symbols()):
            if isinstance(symbol, DataSymbol):
                yield self.sizes.place(symbol)[0]

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__index__", "__int__", "__pos__", "__trunc__", "__floor__", "__ceil__") and not args:
            return self
        return ConstantValue(self.constant()).call_method(frame, name, args, kwargs)

    def reconstruct(self, cg: Codegen) -> None:
        sizes = self.sizes
        expression = sizes.simplified(self.size.node.expression)
        symbols = sorted(dict.fromkeys(expression.symbols()), key=str)
        leaves = [sizes.place(symbol) if isinstance(symbol, DataSymbol) else sizes.leaves[symbol] for symbol in symbols]
        dims = [(leaf[1], False) if isinstance(leaf, tuple) else (leaf.dim, leaf.is_stride) for leaf in leaves]
        cg.em.call_object(
            ComputedSize(expression, tuple(zip(symbols, dims))),
            lambda: [
                cg.load(leaf[0]) if isinstance(leaf, tuple) else cg.em.load_source(leaf.source) for leaf in leaves
            ],
            len(leaves),
        )


def _undecided(size: SymIntValue) -> Unsupported:
    """The program asks about a size that data decides: what torch's shape functions take for granted is no answer."""
    return Unsupported(f"a question about {size.describe()}, which depends on the data of a tensor", "FJ102")


def _depends_on_data(difference: Any) -> bool:
    expression = expression_of(difference)
    return expression is None or expression.is_of_data


class SizeQuestion(Value):
    """The outcome of a comparison with a size that data decides. A graph can assert it; whoever must know it breaks the
    graph."""

    symbolic = True

    def __init__(self, function: Callable[..., Any], operands: list[Value], refusal: Unsupported) -> None:
        self.function, self.operands, self.refusal = function, operands, refusal

    def python_type(self) -> type:
        return bool

    def describe(self) -> str:
        return "the outcome of a comparison with a size that data decides"

    def children(self) -> Iterator[Value]:
        return iter(self.operands)

    def must_be_known(self) -> Any:
        raise self.refusal.again()

    def constant(self) -> Any:
        return self.must_be_known()

    def proxy(self) -> Any:
        return self.must_be_known()

    def truth(self, frame: Frame) -> bool:
        return bool(self.must_be_known())

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found: Value = self.must_be_known()
        return found

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(self.function, lambda: [cg.load(operand) for operand in self.operands], len(self.operands))


def plain_or_size(value: Value) -> Any:
    """A number as Python computes with it: a torch.SymInt for a size. None for what is no number."""
    if isinstance(value, SymIntValue):
        return value.size
    if value.symbolic or not value.is_constant():
        return None
    number = value.constant()
    return int(number) if type(number) is bool else number if type(number) in (int, float) else None


def on_sizes(function: Callable[..., Any], *values: Value) -> Value | None:
    """`function` of numbers one of which is a size, as an expression or, for a comparison, its outcome; None where the
    sizes must be known."""
    if not any(isinstance(value, SymIntValue) for value in values):
        return None
    numbers = [plain_or_size(value) for value in values]
    if any(number is None for number in numbers) or (function in _DIVISIONS and not numbers[1]):
        return None
    if function in _COMPARISONS and any(isinstance(number, float) for number in numbers):
        function, numbers = _among_ints(function, *numbers)
        if not isinstance(numbers[1], (int, torch.SymInt)):
            return ConstantValue(bool(function(0, numbers[1])))  # nan, or infinite
    if function in _COMPARISONS or (function in _FOLLOWED and all(not isinstance(number, float) for number in numbers)):
        of_data = next((value for value in values if isinstance(value, SymIntValue) and value.is_of_data()), None)
        if of_data is not None and function in _DECIDES:
            raise _undecided(of_data)
        if of_data is not None and function in _COMPARISONS and _depends_on_data(numbers[0] - numbers[1]):
            return SizeQuestion(function, list(values), _undecided(of_data))
        return from_python(function(*numbers))
    if function is operator.pow and isinstance(values[0], SymIntValue) and type(numbers[1]) is int:
        return from_python(math.prod([numbers[0]] * numbers[1])) if 1 <= numbers[1] <= _MOST_FACTORS else None
    return None


def _among_ints(function: Callable[..., Any], a: Any, b: Any) -> tuple[Callable[..., Any], list[Any]]:
    """The comparison of an int with a float as one with an int that comes to the same, the int that is not known
    first. A float that is nan or infinite stays, and what no size comes near to is as good as infinite."""
    if isinstance(a, float):
        function, a, b = _MIRRORED[function], b, a
    if not abs(b) < _OUT_OF_REACH:
        return function, [a, b]
    if function in (operator.eq, operator.ne):
        return function, [a, int(b)] if b.is_integer() else [a, math.copysign(math.inf, b)]
    return function, [a, math.ceil(b) if function in (operator.ge, operator.lt) else math.floor(b)]


_MIRRORED: Final = {
    operator.lt: operator.gt, operator.gt: operator.lt, operator.le: operator.ge, operator.ge: operator.le,
    operator.eq: operator.eq, operator.ne: operator.ne,
}
_OUT_OF_REACH: Final = 2.0**256
_MOST_FACTORS: Final = 4
_DECIDES = frozenset((operator.floordiv, operator.mod, min, max))
"""Functions whose expression may be simplified by what torch's shape functions take for granted."""
_DIVISIONS = frozenset((operator.floordiv, operator.mod))
_COMPARISONS = frozenset((operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge))


@makes(torch.SymInt)
def _size(obj: torch.SymInt) -> Value:
    """A size that a fake has, or what torch computed from sizes."""
    known = obj.node.known()
    return SymIntValue(obj) if known is None else ConstantValue(known)


@makes(torch.SymBool, torch.SymFloat)
def _assumed(obj: torch.SymBool | torch.SymFloat) -> Value:
    """What torch computed from sizes and is no int: assumed as it is now."""
    return ConstantValue(bool(obj) if isinstance(obj, torch.SymBool) else float(obj))
