"""Expressions over sizes as text of Python, which is run many times in place of walking through them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from framejit.symbols.conditions import Condition
from framejit.symbols.expression import Atom, Expression, Symbol

_CALLED: Final = ("min", "max")


class WrittenExpressions:
    """Writes expressions, and gives their symbols names of variables."""

    def __init__(self) -> None:
        self.names: dict[Symbol, str] = {}

    def text(self, expression: Expression) -> str:
        """The expression in brackets, with names for its symbols."""
        terms = [
            "*".join([str(coefficient), *map(self._factor, product)])
            for product, coefficient in expression.terms.items()
        ]
        return f"({' + '.join(terms) or '0'})"

    def name(self, symbol: Symbol) -> str:
        """The variable that has the symbol's size."""
        return self.names.setdefault(symbol, f"size{len(self.names)}")

    def _factor(self, factor: Atom) -> str:
        if isinstance(factor, Symbol):
            return self.name(factor)
        left, right = self.text(factor.left), self.text(factor.right)
        return f"{factor.op}({left}, {right})" if factor.op in _CALLED else f"({left} {factor.op} {right})"


def all_hold(conditions: Sequence[Condition], symbols: Sequence[Symbol]) -> Callable[[tuple[int, ...]], bool]:
    """A function that says whether all conditions hold for sizes, given in the order of `symbols`. One in which
    something is divided by 0 does not. Raises KeyError for a condition on another symbol."""
    written = WrittenExpressions()
    parameters = [written.name(symbol) for symbol in symbols]
    tests = [
        f"{'' if condition.outcome else 'not '}{written.text(condition.expression)} "
        f"{'==' if condition.relation == '==' else '<'} 0"
        for condition in conditions
    ]
    if len(written.names) > len(symbols):
        raise KeyError([symbol for symbol in written.names if symbol not in symbols])
    lines = [
        "def holds(sizes):", *([f"    {', '.join(parameters)}, = sizes"] if parameters else []),
        "    try:", f"        return {' and '.join(tests) or 'True'}", "    except ZeroDivisionError:",
        "        return False",
    ]
    namespace: dict[str, Callable[[tuple[int, ...]], bool]] = {}
    exec("\n".join(lines), namespace)
    return namespace["holds"]
