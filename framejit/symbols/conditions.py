"""What was asked about sizes while something was captured, and the answers: they must be the same at each call that
what was captured serves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Literal

from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.symbols.expression import Expression, Symbol

LEAST: Final = 2
"""Sizes 0 and 1 mean other things (no elements, broadcasting), so that they are left to be assumed."""

LONGEST: Final = 500
"""How many symbols a quotient may be written with. Those of models have less than fifty."""

Relation = Literal["==", "<"]


@dataclass(frozen=True)
class Condition:
    """Whether `expression` is 0 (or less than 0) came out as `outcome`."""

    expression: Expression
    relation: Relation
    outcome: bool

    def sides(self) -> tuple[Expression, Expression]:
        """The two expressions that are compared, with no negative coefficients on either side."""
        terms = self.expression.terms.items()
        return Expression({p: c for p, c in terms if c > 0}), Expression({p: -c for p, c in terms if c < 0})

    def __str__(self) -> str:
        left, right = self.sides()
        sign = self.relation if self.outcome else {"==": "!=", "<": ">="}[self.relation]
        return f"{left} {sign} {right}"


class Conditions:
    """Decides questions about expressions by the hints of their symbols, and keeps the answers that do not go without
    saying."""

    def __init__(self, on_condition: Callable[[Condition], None] | None = None) -> None:
        self._known: dict[tuple[Expression, Relation], Condition] = {}
        self._granted: dict[tuple[Expression, Relation], Condition] = {}
        self._replaced: dict[Symbol, Expression] = {}
        self._on_condition = on_condition or _nobody
        self._are_taken = False

    def forget_listener(self) -> None:
        """From here on nobody is told of new conditions."""
        self._on_condition = _nobody

    def __iter__(self) -> Iterator[Condition]:
        return iter(self._known.values())

    def taken(self) -> tuple[Condition, ...]:
        """All of them, for what is checked at each call. Nothing may be assumed from here on, as nobody would look
        whether it holds: a question whose answer is not known raises AssertionError."""
        self._are_taken = True
        return tuple(self)

    def granted(self) -> list[str]:
        """The conditions that are taken for granted, as sorted text: equal for conditions from which the same
        follows."""
        answers = [
            f"{expression} {relation} 0 is {condition.outcome}"
            for (expression, relation), condition in self._granted.items()
        ]
        return sorted(
            [
                *answers,
                *(
                    f"{symbol} is {expression}"
                    for symbol, expression in self._replaced.items()
                    if str(symbol) != str(expression)
                ),
            ]
        )

    def with_hints(self, hints: Mapping[Symbol, int]) -> tuple[Conditions, dict[Symbol, Symbol]]:
        """New conditions that take the answers so far for granted and keep only further ones, and the symbols that
        stand for these symbols there: their hints are others."""
        made = Conditions()
        symbols = {symbol: Symbol(symbol.name, hint, symbol.bounds, symbol.grows) for symbol, hint in hints.items()}
        made._replaced = {symbol: Expression.of(symbols[symbol]) for symbol in symbols}
        for symbol, expression in self._replaced.items():
            made._replaced[symbol] = expression.substitute(made._replaced)
        for condition in (*self._granted.values(), *self._known.values()):
            expression = _normal(condition.expression.substitute(made._replaced), condition.relation)
            made._granted[expression, condition.relation] = condition
        return made, symbols

    def simplified(self, expression: Expression) -> Expression:
        """With what is known to be equal put in place of symbols."""
        return expression.substitute(self._replaced) if self._replaced else expression

    def kept_short(self, expression: Expression) -> Expression:
        """The simplified expression, or, where quotients in it have become too long to compute with, the number that
        it is now.

        A quotient holds what was divided. So an expression that is divided, and has its remainder added, doubles with
        each such step of a program, or of views of views, and soon no question about it would ever be answered.
        """
        expression = self.simplified(expression)
        if all([atom.length <= LONGEST for product in expression.terms for atom in product]):
            return expression
        for symbol in dict.fromkeys(expression.symbols()):
            self.pin(Expression.of(symbol))
        return Expression.constant(expression.hint)

    def known(self, expression: Expression, relation: Relation) -> bool | None:
        """The answer where it follows from bounds and earlier answers; else None."""
        expression = _normal(self.simplified(expression), relation)
        low, high = expression.bounds
        if relation == "<":
            if high < 0 or low >= 0:
                return high < 0
        elif low > 0 or high < 0 or low == high == 0:
            return low == high == 0
        found = self._answer(expression, relation)
        if found is None and relation == "<":  # what is 0 is not less, what is less is not 0
            equal = self._answer(_normal(expression, "=="), "==")
            return False if equal is not None and equal.outcome else None
        return None if found is None else found.outcome

    def _answer(self, expression: Expression, relation: Relation) -> Condition | None:
        return self._known.get((expression, relation)) or self._granted.get((expression, relation))

    def decide(self, expression: Expression, relation: Relation) -> bool:
        """The answer for the hints, kept as a condition unless it is known."""
        known = self.known(expression, relation)
        if known is not None:
            return known
        expression = _normal(self.simplified(expression), relation)
        if expression.is_of_data:
            raise Unsupported(
                f"whether {Condition(expression, relation, True)} depends on the data of a tensor", "FJ102"
            )
        if self._are_taken:  # no assert: a call that nobody checks gives wrong results, with `python -O`, too
            raise AssertionError(f"{expression} {relation} 0 is asked when the conditions on sizes were taken")
        outcome = expression.hint == 0 if relation == "==" else expression.hint < 0
        # which no program of guards computes with
        if any(abs(coefficient) > _LARGEST for coefficient in expression.terms.values()):
            for symbol in dict.fromkeys(expression.symbols()):
                self.pin(Expression.of(symbol))
            return outcome
        condition = self._known[expression, relation] = Condition(expression, relation, outcome)
        if relation == "==" and outcome:
            self._solve(expression)
        self._on_condition(condition)
        return outcome

    def equate(self, symbol: Symbol, other: Symbol) -> None:
        """Put `other` in the place of a symbol that nothing has been asked about, under the condition that they are
        equal."""
        difference = _normal(Expression.of(symbol) - Expression.of(other), "==")
        condition = self._known[difference, "=="] = Condition(difference, "==", True)
        self._replaced[symbol] = Expression.of(other)
        self._on_condition(condition)

    def pin(self, expression: Expression) -> int:
        """The number that the expression is now, which it must be at each call."""
        self.decide(expression - Expression.constant(expression.hint), "==")
        return expression.hint

    def _solve(self, expression: Expression) -> None:
        """Where a symbol is determined by an equation, it is replaced from now on."""
        for product, coefficient in expression.terms.items():
            if len(product) == 1 and isinstance(product[0], Symbol) and abs(coefficient) == 1:
                symbol = product[0]
                rest = Expression({p: c for p, c in expression.terms.items() if p != product})
                if symbol not in rest.symbols():
                    solution = -rest if coefficient == 1 else rest
                    self._replaced = {
                        known: value.substitute({symbol: solution}) for known, value in self._replaced.items()
                    }
                    self._replaced[symbol] = solution
                    return


_LARGEST = 2**63 - 1


def _nobody(condition: Condition) -> None:
    pass


def _normal(expression: Expression, relation: Relation) -> Expression:
    """One form for questions with the same answer: coefficients without a common divisor, and for `== 0` the first of
    them positive."""
    if not expression.terms:
        return expression
    divisor = math.gcd(*expression.terms.values())
    if relation == "==" and min(expression.terms.items(), key=lambda term: str(term[0]))[1] < 0:
        divisor = -divisor
    return (
        expression
        if divisor == 1
        else Expression({product: coefficient // divisor for product, coefficient in expression.terms.items()})
    )
