"""Index arithmetic: where in memory, or at which iteration, an element lies.

An `Index` is an integer expression over loop variables, kept as a sum of atoms with integer coefficients, so that the
stride of a loop variable can be read off. Divisions and remainders are simplified with what the sizes of the loops say
about their operands' bounds.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Union

from framejit.backends.fuse.sizes.symbolic_size import hint, surely_divides

if TYPE_CHECKING:
    from framejit.backends.fuse.loop_ir.expr import Expr

_numbers = count()


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable, running from 0 to `size` - 1. Its name tells it from every other."""

    name: str
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, max(self.size - 1, 0)

    def __str__(self) -> str:
        return self.name


def fresh_var(prefix: str, size: int) -> Var:
    """A loop variable with a name that no other has."""
    return Var(f"{prefix}{next(_numbers)}", size)


@dataclass(frozen=True)
class Quotient:
    """Floor of `index` / `divisor`. The index is never negative: processors round to zero, not down."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        low, high = self.index.bounds
        return low // self.divisor, high // self.divisor

    def __str__(self) -> str:
        return f"({self.index}) // {self.divisor}"


@dataclass(frozen=True)
class Remainder:
    """`index` modulo `divisor`. Neither it nor the index is ever negative, as a quotient's."""

    index: Index
    divisor: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, self.divisor - 1

    def __str__(self) -> str:
        return f"({self.index}) % {self.divisor}"


@dataclass(frozen=True)
class Indirect:
    """An integer that a kernel computes or loads (an int64 expression), known to lie in 0 to `size` - 1."""

    value: Expr
    size: int

    @property
    def bounds(self) -> tuple[int, int]:
        return 0, max(self.size - 1, 0)

    def __str__(self) -> str:
        return f"[{self.value}]"


Atom = Union[Var, Quotient, Remainder, Indirect]  # noqa: UP007  (names of classes defined around it)


class Index:
    """`const` plus the sum of coefficient times atom over `terms`. Immutable; equal sums are equal and hash alike."""

    def __init__(self, terms: Mapping[Atom, int], const: int = 0) -> None:
        self.terms: dict[Atom, int] = {atom: coefficient for atom, coefficient in terms.items() if coefficient}
        self.const = const

    @staticmethod
    def of(value: Index | Var | int) -> Index:
        """An index from a number or a loop variable."""
        if isinstance(value, Index):
            return value
        if isinstance(value, Var):
            return Index({value: 1} if value.size != 1 else {})  # a loop of one turn stays at 0
        return Index({}, value)

    @cached_property
    def _key(self) -> tuple[frozenset[tuple[Atom, int]], int]:
        return frozenset(self.terms.items()), self.const

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Index) and self._key == other._key

    def __add__(self, other: Index | Var | int) -> Index:
        other = Index.of(other)
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            terms[atom] = terms.get(atom, 0) + coefficient
        return Index(terms, self.const + other.const)

    __radd__ = __add__

    def __sub__(self, other: Index | Var | int) -> Index:
        return self + Index.of(other) * -1

    def __mul__(self, factor: int) -> Index:
        return Index({atom: coefficient * factor for atom, coefficient in self.terms.items()}, self.const * factor)

    __rmul__ = __mul__

    def __floordiv__(self, divisor: int) -> Index:
        if divisor == 1:
            return self
        whole, rest = self._split(divisor)
        return whole + rest._quotient(divisor)

    def __mod__(self, divisor: int) -> Index:
        if divisor == 1:
            return Index({})
        _, rest = self._split(divisor)
        low, high = rest.bounds
        if 0 <= low and high < divisor:
            return rest
        large, small, unit = rest._units(divisor)
        if unit > 1:
            return (large._over(unit) % (divisor // unit)) * unit + small
        return Index({Remainder(rest + rest._turns_below_zero(divisor) * divisor, divisor): 1})

    def _split(self, divisor: int) -> tuple[Index, Index]:
        """(q, r) with self = q * divisor + r, where r keeps what does not divide evenly."""
        divides = {atom: surely_divides(divisor, coefficient) for atom, coefficient in self.terms.items()}
        whole = {atom: coefficient // divisor for atom, coefficient in self.terms.items() if divides[atom]}
        rest = {atom: coefficient for atom, coefficient in self.terms.items() if not divides[atom]}
        return Index(whole, self.const // divisor), Index(rest, self.const % divisor)

    def _quotient(self, divisor: int) -> Index:
        low, high = self.bounds
        if low // divisor == high // divisor:
            return Index({}, low // divisor)
        large, _, unit = self._units(divisor)
        if unit > 1:
            return large._over(unit) // (divisor // unit)
        turns = self._turns_below_zero(divisor)
        return Index({Quotient(self + turns * divisor, divisor): 1}, -turns)

    def _turns_below_zero(self, divisor: int) -> int:
        """How many times `divisor` has to be added for the least value not to be negative."""
        low, _ = self.bounds
        return -(low // divisor) if low < 0 else 0

    def _units(self, divisor: int) -> tuple[Index, Index, int]:
        """(large, small, unit): self = large + small, `unit` divides `divisor` and all of `large`, and 0 <= small <
        unit. A unit of 1 says nothing."""
        for unit in sorted(
            {_common_divisor(coefficient, divisor) for coefficient in self.terms.values()}, key=hint, reverse=True
        ):
            if unit == 1:
                break
            large = {atom: coefficient for atom, coefficient in self.terms.items() if surely_divides(unit, coefficient)}
            small = Index(
                {atom: coefficient for atom, coefficient in self.terms.items() if atom not in large}, self.const % unit
            )
            low, high = small.bounds
            if 0 <= low and high < unit:
                return Index(large, self.const - self.const % unit), small, unit
        return self, Index({}), 1

    def _over(self, unit: int) -> Index:
        return Index({atom: coefficient // unit for atom, coefficient in self.terms.items()}, self.const // unit)

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest value that the loops can give it (not always reached)."""
        low = high = self.const
        for atom, coefficient in self.terms.items():
            least, greatest = atom.bounds
            low += coefficient * (least if coefficient > 0 else greatest)
            high += coefficient * (greatest if coefficient > 0 else least)
        return low, high

    @property
    def is_affine(self) -> bool:
        """Whether it is a sum of loop variables with coefficients and nothing else."""
        return all(isinstance(atom, Var) for atom in self.terms)

    def stride(self, var: Var) -> int:
        """How far one step of `var` leads, where `var` occurs as itself only."""
        return self.terms.get(var, 0)

    def vars(self) -> set[Var]:
        """All loop variables in it, inside divisions and indirect loads too."""
        return self.own_vars().union(*(atom.value.vars() for atom in self.indirects))

    def own_vars(self) -> set[Var]:
        """The loop variables in it, inside divisions too, but for those of indirect loads, which can be of other loops
        of theirs."""
        found: set[Var] = set()
        for atom in self.terms:
            if isinstance(atom, Var):
                found.add(atom)
            elif not isinstance(atom, Indirect):
                found |= atom.index.own_vars()
        return found

    @cached_property
    def indirects(self) -> tuple[Indirect, ...]:
        """The indirect atoms in it, at any depth."""
        found: list[Indirect] = []
        for atom in self.terms:
            if isinstance(atom, Indirect):
                found.append(atom)
            elif not isinstance(atom, Var):
                found += atom.index.indirects
        return tuple(found)

    def substitute(self, replacement: Mapping[Var, Index], expr: Mapping[Expr, Expr] | None = None) -> Index:
        """This index with variables replaced, simplified anew. `expr` says what to make of the expressions in indirect
        atoms."""
        result = Index({}, self.const)
        for atom, coefficient in self.terms.items():
            if isinstance(atom, Var):
                result += replacement.get(atom, Index.of(atom)) * coefficient
            elif isinstance(atom, Indirect):
                value = expr[atom.value] if expr is not None else atom.value.substitute(replacement)
                result += Index({Indirect(value, atom.size): coefficient})
            elif isinstance(atom, Quotient):
                result += (atom.index.substitute(replacement, expr) // atom.divisor) * coefficient
            else:
                result += (atom.index.substitute(replacement, expr) % atom.divisor) * coefficient
        return result

    def __str__(self) -> str:
        parts = [
            str(atom)
            if coefficient == 1
            else f"{coefficient}*{atom}"
            if isinstance(atom, Var)
            else f"{coefficient}*({atom})"
            for atom, coefficient in self.terms.items()
        ]
        if self.const or not parts:
            parts.append(str(self.const))
        return " + ".join(parts)

    __repr__ = __str__


def _common_divisor(a: int, b: int) -> int:
    """A divisor of both: the greatest one of two numbers; of sizes one of the two, if it divides the other."""
    if isinstance(a, int) and isinstance(b, int):
        return math.gcd(a, b)
    return b if surely_divides(b, a) else a if surely_divides(a, b) else 1


def flatten(indices: Iterable[Index | Var | int], sizes: Iterable[int]) -> Index:
    """The position in row-major order of an element of a tensor of these sizes."""
    flat = Index({})
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index
    return flat


def unflatten(flat: Index, sizes: tuple[int, ...]) -> list[Index]:
    """The indices, one a dimension, of the element at a position in row-major order."""
    indices: list[Index] = []
    for size in reversed(sizes[1:]):
        indices.append(flat % max(size, 1))
        flat = flat // max(size, 1)
    if sizes:
        indices.append(flat)
    return indices[::-1]


def strided(indices: Iterable[Index | Var | int], strides: Iterable[int], offset: int = 0) -> Index:
    """The offset in memory, in elements, of an element of a strided tensor."""
    place = Index({}, offset)
    for index, stride in zip(indices, strides, strict=True):
        place += Index.of(index) * stride
    return place
