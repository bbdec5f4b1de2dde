"""Shorthand for scalar expressions; plain numbers among the operands take the dtype of the others."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

from framejit.backends.fuse.loop_ir.expr import Expr, const, op

Number: TypeAlias = bool | int | float
Operand: TypeAlias = Expr | Number


def _apply(name: str, *operands: Operand) -> Expr:
    dtype = next(operand.dtype for operand in operands if isinstance(operand, Expr))
    return op(name, *(operand if isinstance(operand, Expr) else const(operand, dtype) for operand in operands))


def add(a: Operand, b: Operand) -> Expr:
    return _apply("add", a, b)


def sub(a: Operand, b: Operand) -> Expr:
    return _apply("sub", a, b)


def mul(a: Operand, b: Operand) -> Expr:
    return _apply("mul", a, b)


def div(a: Operand, b: Operand) -> Expr:
    return _apply("div", a, b)


def power(a: Operand, b: Operand) -> Expr:
    return _apply("pow", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    return _apply("maximum", a, b)


def minimum(a: Operand, b: Operand) -> Expr:
    return _apply("minimum", a, b)


def eq(a: Operand, b: Operand) -> Expr:
    return _apply("eq", a, b)


def ne(a: Operand, b: Operand) -> Expr:
    return _apply("ne", a, b)


def lt(a: Operand, b: Operand) -> Expr:
    return _apply("lt", a, b)


def le(a: Operand, b: Operand) -> Expr:
    return _apply("le", a, b)


def gt(a: Operand, b: Operand) -> Expr:
    return _apply("gt", a, b)


def ge(a: Operand, b: Operand) -> Expr:
    return _apply("ge", a, b)


def both(a: Expr, b: Expr) -> Expr:
    return op("bitand", a, b)


def either(a: Expr, b: Expr) -> Expr:
    return op("bitor", a, b)


def negated(a: Expr) -> Expr:
    """The logical not of a condition."""
    return op("bitnot", a)


def truth(a: Expr) -> Expr:
    """Whether it is not zero; nan is not."""
    return a if a.dtype == torch.bool else ne(a, 0)


def where(condition: Expr, a: Operand, b: Operand) -> Expr:
    dtype = next(operand.dtype for operand in (a, b) if isinstance(operand, Expr))
    a, b = (operand if isinstance(operand, Expr) else const(operand, dtype) for operand in (a, b))
    return op("where", condition, a, b)


def square(a: Expr) -> Expr:
    return mul(a, a)


def greatest(dtype: torch.dtype) -> Number:
    """The greatest value of a dtype, infinity for floats."""
    if dtype == torch.bool:
        return True
    return math.inf if dtype.is_floating_point else torch.iinfo(dtype).max


def lowest(dtype: torch.dtype) -> Number:
    """The least value of a dtype, minus infinity for floats."""
    if dtype == torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else torch.iinfo(dtype).min
