"""Integer expressions over sizes, in canonical form: sums of products of symbols, so that equal ones are most often
recognised as equal.

A polynomial with integer coefficients; quotients, remainders, minima and maxima that do not simplify stand in it as if
they were symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

INFINITE: Final = math.inf
Bounds = tuple[float, float]
"""Least and greatest value, both included."""


class Symbol:
    """One size (or other integer) that a call brings with it: `hint` now, and at other calls anything in `bounds`.

    That a size is a multiple of something, or of some magnitude, is a sign that others will be, too; not so if it
    `grows`, as the length of a text does.
    """

    length = 1

    def __init__(self, name: str, hint: int, bounds: Bounds = (-INFINITE, INFINITE), grows: bool = False) -> None:
        self.name, self.hint, self.bounds, self.grows = name, hint, bounds, grows

    def __repr__(self) -> str:
        return self.name


class DataSymbol(Symbol):
    """A size that data decides while the graph runs.

    Torch's shape functions may take it for any size but 0 and 1: the formulas that they give hold for these, too
    (slices, where they would not, have symbols of their own). What the program itself asks is not answered. It is
    another number at most calls.

    `is_of_slice`: whether it is how much a slice leaves, which follows from sizes and ends once these are known.
    """

    def __init__(self, name: str, is_of_slice: bool = False) -> None:
        super().__init__(name, 4099, (2, INFINITE), grows=True)
        self.is_of_slice = is_of_slice


class Compound:
    """`op` of two expressions, where it could not be simplified. Equal by structure."""

    __slots__ = ("op", "left", "right", "hint", "bounds", "length", "_hash", "_text")

    def __init__(self, op: str, left: Expression, right: Expression) -> None:
        self.op, self.left, self.right = op, left, right
        self.hint: int = FUNCTIONS[op](left.hint, right.hint)
        self.bounds = _compound_bounds(op, left.bounds, right.bounds)
        self.length: int = left.length + right.length
        self._hash = hash((op, left, right))
        self._text: str | None = None

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Compound) and (self.op, self.left, self.right) == (other.op, other.left, other.right)
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self._text is None:  # expressions are ordered by their text, each level of them once more
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({self.left}, {self.right})"
        left, right = str(self.left), str(self.right)
        if len(self.left.terms) > 1:
            left = f"({left})"
        if self.right.value is None and [*self.right.terms.items()] != [
            ((atom,), 1) for product in self.right.terms for atom in product
        ]:
            right = f"({right})"
        return f"({left} {self.op} {right})"


Atom = Symbol | Compound
Product = tuple[Atom, ...]
"""Factors in order of their text; the empty product is 1."""

FUNCTIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": int.__floordiv__, "%": int.__mod__, "min": min, "max": max,
}


class Expression:
    """A sum of products, each with a coefficient that is not 0. Immutable, equal by value.

    What follows from the terms is worked out when it is asked for: most expressions are but steps to others.
    """

    __slots__ = ("terms", "_hint", "_bounds", "_hash")

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms = terms
        self._hint: int | None = None
        self._bounds: Bounds | None = None
        self._hash: int | None = None

    @property
    def hint(self) -> int:
        """Its value now."""
        if self._hint is None:
            self._hint = 0
            for product, coefficient in self.terms.items():
                for atom in product:
                    coefficient *= atom.hint
                self._hint += coefficient
        return self._hint

    @property
    def bounds(self) -> Bounds:
        """What it is never below, and never above."""
        if self._bounds is None:
            self._bounds = _sum_bounds(self.terms)
        return self._bounds

    @property
    def length(self) -> int:
        """How many symbols it is written with, each as often as it stands there."""
        return sum([atom.length for product in self.terms for atom in product])

    @staticmethod
    @lru_cache(4096, typed=True)
    def constant(value: int) -> Expression:
        return Expression({(): value} if value else {})

    @staticmethod
    def of(atom: Atom) -> Expression:
        return Expression({(atom,): 1})

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Expression) and self.terms == other.terms)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __repr__(self) -> str:
        def text(product: Product, coefficient: int) -> str:
            factors = [str(atom) for atom in product]
            return "*".join([str(coefficient), *factors] if coefficient != 1 or not factors else factors)

        return (
            " + ".join(
                text(*term) for term in sorted(self.terms.items(), key=lambda term: (-len(term[0]), str(term[0])))
            )
            or "0"
        )

    @property
    def value(self) -> int | None:
        """The number that it is whatever the symbols are, or None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    def symbols(self) -> Iterator[Symbol]:
        """The symbols in its terms, some of them more than once."""
        for product in self.terms:
            for atom in product:
                if isinstance(atom, Symbol):
                    yield atom
                else:
                    yield from atom.left.symbols()
                    yield from atom.right.symbols()

    @property
    def is_of_data(self) -> bool:
        """Whether some symbol in it is one that data decides."""
        return any(isinstance(symbol, DataSymbol) for symbol in self.symbols())

    @property
    def lone_symbol(self) -> Symbol | None:
        """The symbol that it consists of, if it is one and nothing else."""
        if len(self.terms) != 1:
            return None
        ((product, coefficient),) = self.terms.items()
        return product[0] if coefficient == 1 and len(product) == 1 and isinstance(product[0], Symbol) else None

    def __add__(self, other: Expression) -> Expression:
        return _sum(self.terms, other.terms, 1)

    def __sub__(self, other: Expression) -> Expression:
        return _sum(self.terms, other.terms, -1)

    def __neg__(self) -> Expression:
        return Expression({product: -coefficient for product, coefficient in self.terms.items()})

    def __mul__(self, other: Expression) -> Expression:
        found: dict[Product, int] = {}
        for a, m in self.terms.items():
            for b, n in other.terms.items():
                product = tuple(sorted((*a, *b), key=repr)) if a and b else a or b
                found[product] = found.get(product, 0) + m * n
        return Expression({product: coefficient for product, coefficient in found.items() if coefficient})

    def __floordiv__(self, other: Expression) -> Expression:
        """Python's `//`. Raises ZeroDivisionError where `other` is the number 0."""
        divided, rest = _divide(self, other)
        if not rest.terms:
            return divided
        if other.value is not None and rest.value is not None:
            return divided + Expression.constant(rest.value // other.value)
        low, high = rest.bounds
        if low >= 0 and high < other.bounds[0]:
            return divided
        return divided + Expression.of(Compound("//", rest, other))

    def __mod__(self, other: Expression) -> Expression:
        """Python's `%`. Raises ZeroDivisionError where `other` is the number 0."""
        _, rest = _divide(self, other)
        if other.value is not None and rest.value is not None:
            return Expression.constant(rest.value % other.value)
        low, high = rest.bounds
        if low >= 0 and high < other.bounds[0]:
            return rest
        return Expression.of(Compound("%", rest, other))

    def minimum(self, other: Expression) -> Expression:
        low, high = (self - other).bounds
        return self if high <= 0 else other if low >= 0 else Expression.of(Compound("min", self, other))

    def maximum(self, other: Expression) -> Expression:
        low, high = (self - other).bounds
        return self if low >= 0 else other if high <= 0 else Expression.of(Compound("max", self, other))

    def substitute(self, replacement: Mapping[Symbol, Expression]) -> Expression:
        """With other expressions in place of symbols."""
        if not any(symbol in replacement for symbol in self.symbols()):
            return self
        total = Expression({})
        for product, coefficient in self.terms.items():
            factor = Expression.constant(coefficient)
            for atom in product:
                factor = factor * _substitute_atom(atom, replacement)
            total = total + factor
        return total


def _substitute_atom(atom: Atom, replacement: Mapping[Symbol, Expression]) -> Expression:
    if isinstance(atom, Symbol):
        return replacement.get(atom) or Expression.of(atom)
    return OPERATIONS[atom.op](atom.left.substitute(replacement), atom.right.substitute(replacement))


OPERATIONS: Final[dict[str, Callable[[Expression, Expression], Expression]]] = {
    "+": Expression.__add__,
    "-": Expression.__sub__,
    "*": Expression.__mul__,
    "//": Expression.__floordiv__,
    "%": Expression.__mod__,
    "min": Expression.minimum,
    "max": Expression.maximum,
}


def _sum(a: Mapping[Product, int], b: Mapping[Product, int], sign: int) -> Expression:
    found = dict(a)
    for product, coefficient in b.items():
        found[product] = found.get(product, 0) + sign * coefficient
    return Expression({product: coefficient for product, coefficient in found.items() if coefficient})


def _divide(a: Expression, b: Expression) -> tuple[Expression, Expression]:
    """`(q, r)` with `a == q * b + r`, such that `a // b == q + r // b` for whole numbers; all of `a` is in `r` where
    `b` is a sum."""
    if b.value == 0:
        divmod(1, 0)  # which raises in the words of this Python
    if a == b and b.bounds[0] > 0:
        return Expression.constant(1), Expression({})
    if len(b.terms) != 1:
        return Expression({}), a
    ((divisor, by),) = b.terms.items()
    if any(atom.bounds[0] <= 0 for atom in divisor):  # it may be 0, which the division has to meet
        return Expression({}), a
    quotient: dict[Product, int] = {}
    rest: dict[Product, int] = {}
    for product, coefficient in a.terms.items():
        left = list(product)
        for atom in divisor:
            if atom in left:
                left.remove(atom)
        if len(left) == len(product) - len(divisor) and (divisor and coefficient % by == 0 or not divisor):
            whole, remaining = divmod(coefficient, by) if not divisor else (coefficient // by, 0)
            if whole:
                quotient[tuple(left)] = whole
            if remaining:
                rest[product] = remaining
        else:
            rest[product] = coefficient
    return Expression(quotient), Expression(rest)


def _sum_bounds(terms: Mapping[Product, int]) -> Bounds:
    low: float = 0
    high: float = 0
    for product, coefficient in terms.items():
        bounds: Bounds = (coefficient, coefficient)
        for atom in product:
            bounds = _product_bounds(bounds, atom.bounds)
        low, high = low + bounds[0], high + bounds[1]
    return low, high


def _times(a: float, b: float) -> float:
    return 0 if a == 0 or b == 0 else a * b


def _product_bounds(a: Bounds, b: Bounds) -> Bounds:
    if a[0] > 0 and b[0] > 0:
        return a[0] * b[0], a[1] * b[1]
    corners = [_times(x, y) for x in a for y in b]
    return min(corners), max(corners)


def _compound_bounds(op: str, left: Bounds, right: Bounds) -> Bounds:
    if op == "min":
        return min(left[0], right[0]), min(left[1], right[1])
    if op == "max":
        return max(left[0], right[0]), max(left[1], right[1])
    if right[0] <= 0:
        return -INFINITE, INFINITE
    if op == "%":
        return 0, right[1] - 1
    low = -INFINITE if left[0] < 0 else 0 if right[1] == INFINITE else left[0] // right[1]
    return low, (left[1] // right[0] if left[1] >= 0 else -1) if left[1] != INFINITE else INFINITE


def evaluate(expression: Expression, values: Mapping[Symbol, Any]) -> Any:
    """The expression for given values of its symbols (whole numbers, or whatever adds and multiplies like them)."""
    total: Any = 0
    for product, coefficient in expression.terms.items():
        term: Any = coefficient
        for atom in product:
            factor = (
                values[atom]
                if isinstance(atom, Symbol)
                else FUNCTIONS[atom.op](evaluate(atom.left, values), evaluate(atom.right, values))
            )
            term = factor if term == 1 and type(term) is int else term * factor
        total = term if total == 0 and type(total) is int else total + term
    return total
