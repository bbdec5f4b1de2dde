"""Expressions over symbolic sizes, and conditions on them, as plain data and back. Symbols are numbers in a list that
both sides have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from framejit.backends.fuse.cache.kernel_record import BadRecord
from framejit.symbols.conditions import Condition
from framejit.symbols.expression import FUNCTIONS, OPERATIONS, Compound, Expression, Symbol


def written_expression(expression: Expression, numbers: Mapping[Symbol, int]) -> list[Any]:
    """An expression as JSON has it: for each product its coefficient and its factors. Raises KeyError for symbols that
    have no number."""

    def factor(atom: Symbol | Compound) -> Any:
        if isinstance(atom, Symbol):
            return numbers[atom]
        return [atom.op, written_expression(atom.left, numbers), written_expression(atom.right, numbers)]

    return [[coefficient, *map(factor, product)] for product, coefficient in expression.terms.items()]


def read_expression(data: Any, symbols: Sequence[Symbol]) -> Expression:
    """The expression that `written_expression` wrote as `data`. Raises BadRecord for data that is none."""

    def factor(item: Any) -> Expression:
        if type(item) is int and 0 <= item < len(symbols):
            return Expression.of(symbols[item])
        if type(item) is not list or len(item) != 3 or item[0] not in FUNCTIONS:
            raise BadRecord("no factor of an expression")
        return OPERATIONS[item[0]](read_expression(item[1], symbols), read_expression(item[2], symbols))

    if type(data) is not list:
        raise BadRecord("no expression")
    total = Expression({})
    for product in data:
        if type(product) is not list or not product or type(product[0]) is not int:
            raise BadRecord("no product of an expression")
        value = Expression.constant(product[0])
        for item in product[1:]:
            value = value * factor(item)
        total = total + value
    return total


def written_condition(condition: Condition, numbers: Mapping[Symbol, int]) -> list[Any]:
    """A condition as JSON has it."""
    return [written_expression(condition.expression, numbers), condition.relation, condition.outcome]


def read_condition(data: Any, symbols: Sequence[Symbol]) -> Condition:
    """The condition that `written_condition` wrote as `data`. Raises BadRecord for data that is none."""
    if type(data) is not list or len(data) != 3 or data[1] not in ("==", "<") or type(data[2]) is not bool:
        raise BadRecord("no condition")
    return Condition(read_expression(data[0], symbols), data[1], data[2])
