"""Sizes that are not known when a graph is lowered.

Lowering, scheduling and code generation compute with sizes as with ints. An `SymbolicSize` stands where the size is an
expression over the sizes of inputs: arithmetic gives further ones, comparisons are answered by the sizes now, and the
answer is kept as a condition, so that what was generated is used only for sizes that it is right for. Whatever needs
the very number gets it, at the price of a condition that it is this number. What merely wants to know how large
something is about asks `hint`, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import torch

from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import OPERATIONS, Expression, Symbol, evaluate
from framejit.symbols.sym_node import expression_of

GROWTH: Final = 16

_written: ContextVar[Callable[[SymbolicSize], str]] = ContextVar("how sizes are written")


@contextmanager
def sizes_written(write: Callable[[SymbolicSize], str]) -> Iterator[None]:
    """While code is written as text: what stands in it for a size, in f-strings and wherever else one becomes text."""
    token = _written.set(write)
    try:
        yield
    finally:
        _written.reset(token)


class SymbolicSize:
    """An integer expression. Hashes by structure, so that a dictionary never asks whether two different expressions are
    equal."""

    __slots__ = ("expression", "conditions")

    def __init__(self, expression: Expression, conditions: Conditions) -> None:
        self.expression, self.conditions = expression, conditions

    @property
    def hint(self) -> int:
        return self.expression.hint

    @property
    def grows(self) -> bool:
        """Whether it depends on a size that grows from call to call."""
        return any(symbol.grows for symbol in self.conditions.simplified(self.expression).symbols())

    def __hash__(self) -> int:
        return hash(self.expression)

    def __repr__(self) -> str:
        return f"({self.expression})" if len(self.expression.terms) > 1 else str(self.expression)

    def __str__(self) -> str:
        number = self.conditions.simplified(self.expression).value  # it may have become known since
        return _written.get(SymbolicSize.__repr__)(self) if number is None else str(number)

    def __index__(self) -> int:
        return self.conditions.pin(self.expression)

    __int__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return not self.conditions.decide(self.expression, "==")

    # ---- comparisons ----

    def _minus(self, other: Any) -> Expression | None:
        expression = other.expression if isinstance(other, SymbolicSize) else expression_of(other)
        return None if expression is None else self.expression - expression

    def __eq__(self, other: object) -> bool:
        difference = self._minus(other)
        if difference is None:
            return NotImplemented
        return not difference.terms or self.conditions.decide(difference, "==")

    def __lt__(self, other: Any) -> bool:
        difference = self._minus(other)
        return NotImplemented if difference is None else self.conditions.decide(difference, "<")

    def __gt__(self, other: Any) -> bool:
        difference = self._minus(other)
        return NotImplemented if difference is None else self.conditions.decide(-difference, "<")

    def __le__(self, other: Any) -> bool:
        greater = self.__gt__(other)
        return NotImplemented if greater is NotImplemented else not greater

    def __ge__(self, other: Any) -> bool:
        less = self.__lt__(other)
        return NotImplemented if less is NotImplemented else not less

    # ---- arithmetic ----

    def _compute(self, symbol: str, other: Any, reflected: bool = False) -> Any:
        expression = other.expression if isinstance(other, SymbolicSize) else expression_of(other)
        if expression is None:
            return NotImplemented
        operands = (expression, self.expression) if reflected else (self.expression, expression)
        return symbolic_size(OPERATIONS[symbol](*operands), self.conditions)

    def __add__(self, other: Any) -> Any:
        return self._compute("+", other)

    def __sub__(self, other: Any) -> Any:
        return self._compute("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._compute("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._compute("*", other)

    def __floordiv__(self, other: Any) -> Any:
        return self._compute("//", other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._compute("//", other, True)

    def __mod__(self, other: Any) -> Any:
        return self._compute("%", other)

    def __rmod__(self, other: Any) -> Any:
        return self._compute("%", other, True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return symbolic_size(-self.expression, self.conditions)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self


def symbolic_size(expression: Expression, conditions: Conditions) -> Any:
    """The expression as a size: an int where it is a number."""
    expression = conditions.kept_short(expression)
    value = expression.value
    return SymbolicSize(expression, conditions) if value is None else value


def as_size(value: Any) -> Any:
    """A size of a fake as lowering computes with it: an int, or an SymbolicSize for a torch.SymInt."""
    if not isinstance(value, torch.SymInt):
        return value
    return symbolic_size(value.node.expression, value.node.conditions)


def as_sizes(values: Any) -> tuple[Any, ...]:
    """Each of them as a size."""
    return tuple([as_size(value) if type(value) is not int else value for value in values])


def with_sizes(tree: Any) -> Any:
    """A structure of tuples, lists and dicts with sizes as lowering has them for symbolic ints."""
    if isinstance(tree, (tuple, list)):
        kind = type(tree) if type(tree) in (tuple, list) else tuple
        return kind([with_sizes(item) for item in tree])
    if type(tree) is dict:
        return {key: with_sizes(item) for key, item in tree.items()}
    return as_size(tree)


def hint(size: Any) -> int:
    """About how large it is: the size now. Nothing is assumed."""
    return size.hint if isinstance(size, SymbolicSize) else size


def roughly_less(size: Any, limit: int) -> bool:
    """Whether a size is below a limit that only speed depends on. The answer is assumed; but one that grows may become
    GROWTH times as large first, or as small, before another answer is worth another variant."""
    if not isinstance(size, SymbolicSize) or not size.grows:
        return bool(size < limit)
    if size.hint < limit:
        return bool(size < max(limit, size.hint * GROWTH))
    return not size < min(limit, size.hint // GROWTH)


def greatest(sizes: Iterable[Any]) -> Any:
    """The greatest of some sizes, of which there is one at least. Nothing is assumed."""
    most, *others = sizes
    for size in others:
        if isinstance(most, SymbolicSize) or isinstance(size, SymbolicSize):
            one, other = (
                each.expression if isinstance(each, SymbolicSize) else Expression.constant(each)
                for each in (most, size)
            )
            most = symbolic_size(one.maximum(other), (most if isinstance(most, SymbolicSize) else size).conditions)
        else:
            most = max(most, size)
    return most


def surely_equal(a: Any, b: Any) -> bool:
    """Whether two sizes are the same whatever the inputs' sizes are, as far as is known. Nothing is assumed."""
    if not isinstance(a, SymbolicSize):
        a, b = b, a
    if not isinstance(a, SymbolicSize):
        return bool(a == b)
    difference = a._minus(b)
    return difference is not None and a.conditions.known(difference, "==") is True


def surely_divides(divisor: Any, size: Any) -> bool:
    """Whether `size % divisor` is 0 whatever the inputs' sizes are, as far as is known. Nothing is assumed."""
    if not isinstance(size, SymbolicSize) and not isinstance(divisor, SymbolicSize):
        return divisor != 0 and size % divisor == 0
    rest = size % divisor
    return rest.conditions.known(rest.expression, "==") is True if isinstance(rest, SymbolicSize) else rest == 0


def concrete(tree: Any, values: Mapping[Symbol, int]) -> Any:
    """A structure of tuples, lists and dicts with numbers for its SymbolicSizes and symbolic ints."""
    if isinstance(tree, SymbolicSize):
        return evaluate(tree.expression, values)
    if isinstance(tree, torch.SymInt):
        return evaluate(tree.node.expression, values)
    if type(tree) in (tuple, list):
        return type(tree)([concrete(item, values) for item in tree])
    if type(tree) is dict:
        return {key: concrete(item, values) for key, item in tree.items()}
    return tree
