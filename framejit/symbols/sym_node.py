"""Expressions over sizes as torch's own symbolic integers, so that its operators, shape functions and views compute
with them.

`torch.SymInt` forwards all that is done with it to a node; torch has one that is built on sympy, whose import alone
costs more than a capture. These nodes speak the same protocol (torch/csrc/utils/python_symnode.h,
torch/fx/experimental/sym_node.py): arithmetic gives further nodes, and wherever torch has to know a number or the
outcome of a comparison, it asks, and the answer becomes a condition.
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable
from typing import Any, Final, cast

import torch

from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import OPERATIONS, Expression

_NO_END = 2**63 - 1


class _Opaque:
    """What torch's own code is shown in place of a sympy expression: it has no symbols that it would know."""

    free_symbols: frozenset[Any] = frozenset()
    args: tuple[Any, ...] = ()
    is_number = False


class Node:
    """The protocol that integers, truth values and floats have in common. `hint` is the value now."""

    hint: Any
    pytype: type
    conditions: Conditions
    constant = None
    shape_env = None  # torch asks for it, and treats nodes without one (those of XLA, too) as ones to be asked directly
    expr = _Opaque()
    fx_node = None

    @property
    def _hint(self) -> Any:
        return self.hint

    def known(self) -> Any:
        """The value where it is the same at each call, or None."""
        raise NotImplementedError

    def decide(self) -> Any:
        """The value now, made a condition."""
        raise NotImplementedError

    def is_int(self) -> bool:
        return self.pytype is int

    def is_bool(self) -> bool:
        return self.pytype is bool

    def is_float(self) -> bool:
        return self.pytype is float

    def is_nested_int(self) -> bool:
        return False

    def nested_int(self) -> None:
        return None

    def has_hint(self) -> bool:
        return True

    def require_hint(self, fallback: Any = None) -> Any:
        return self.hint

    def is_constant(self) -> bool:
        return False  # torch goes on with a number then, and a quotient takes one that is a float for a SymFloat

    def is_symbolic(self) -> bool:
        return self.known() is None

    def maybe_as_int(self) -> int | None:
        return self.known() if self.pytype is int else None

    def maybe_as_bool(self) -> bool | None:
        return self.known() if self.pytype is bool else None

    def maybe_as_float(self) -> float | None:
        return self.known() if self.pytype is float else None

    def wrap_int(self, value: int) -> Node:
        return IntegerNode(Expression.constant(value), self.conditions)

    def wrap_bool(self, value: bool) -> Node:
        return TruthNode(lambda: value, lambda: value, value, self.conditions)

    def wrap_float(self, value: float) -> Node:
        return FloatNode(value, (), self.conditions)

    def clone(self) -> Node:
        return self

    def guard_int(self, file: str, line: int) -> int:
        return int(self.decide())

    def guard_bool(self, file: str, line: int) -> bool:
        return bool(self.decide())

    def guard_float(self, file: str, line: int) -> float:
        return float(self.decide())

    guard_size_oblivious = guard_or_false = guard_or_true = expect_true = guard_bool

    def statically_known_true(self, file: str, line: int) -> bool:
        return self.known() is True

    def expect_size(self, file: str, line: int) -> bool:
        return True  # every expression that is made a size has been asked already whether it is negative

    def int_(self) -> int:
        return int(self.decide())

    def bool_(self) -> bool:
        return bool(self.decide())

    def _graph_repr(self) -> builtins.str:
        return builtins.str(self)

    str = __repr__ = _graph_repr


class IntegerNode(Node):
    """An integer computed from sizes, behind torch's protocol for `torch.SymInt`. What is asked of it is answered for
    the sizes at hand and noted in `conditions`."""

    pytype = int

    def __init__(self, expression: Expression, conditions: Conditions) -> None:
        self.expression, self.conditions = expression, conditions

    def __str__(self) -> str:
        return str(self.expression)

    @property
    def hint(self) -> int:
        return self.expression.hint

    def known(self) -> int | None:
        return self.conditions.simplified(self.expression).value

    def is_constant(self) -> bool:
        return self.expression.value is not None

    def decide(self) -> int:
        return self.conditions.pin(self.expression)

    def pos(self) -> Node:
        return self

    def neg(self) -> Node:
        return IntegerNode(-self.expression, self.conditions)

    def sym_sum(self, parts: tuple[Node, ...]) -> Node:
        total: Any = parts[0]
        for part in parts[1:]:
            total = total.add(part)
        return cast(Node, total)

    def sym_float(self) -> Node:
        return FloatNode(float(self.hint), (self,), self.conditions, (self, 1))

    def truediv(self, other: Node) -> Node:
        return FloatNode(self.hint / other.hint, _leaves(self, other), self.conditions)

    int_truediv = float_truediv = truediv

    def is_contiguous(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_bool(_is_contiguous(sizes, strides, range(len(sizes) - 1, -1, -1)))

    def is_channels_last_contiguous_2d(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_bool(len(sizes) == 4 and _is_contiguous(sizes, strides, (1, 3, 2, 0)))

    def is_channels_last_contiguous_3d(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_bool(len(sizes) == 5 and _is_contiguous(sizes, strides, (1, 4, 3, 2, 0)))

    def is_channels_last_strides_2d(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_bool(len(sizes) == 4 and _rises(sizes, strides, (1, 3, 2, 0)))

    def is_channels_last_strides_3d(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_bool(len(sizes) == 5 and _rises(sizes, strides, (1, 4, 3, 2, 0)))

    def is_non_overlapping_and_dense(self, sizes: list[Node], strides: list[Node]) -> Node:
        order = sorted((dim for dim in range(len(sizes)) if sizes[dim].hint != 1), key=lambda dim: strides[dim].hint)
        return self.wrap_bool(
            _is_contiguous(sizes, strides, [*(dim for dim in range(len(sizes)) if sizes[dim].hint == 1), *order])
        )

    def is_non_overlapping_and_dense_indicator(self, sizes: list[Node], strides: list[Node]) -> Node:
        return self.wrap_int(int(self.is_non_overlapping_and_dense(sizes, strides).decide()))


def _is_contiguous(sizes: list[Node], strides: list[Node], order: Any) -> bool:
    """Whether dimensions lie densely in memory, the innermost first; a size of 1 may have any stride."""
    expected: Any = sizes[0].wrap_int(1) if sizes else None
    for dim in order:
        size: Any = sizes[dim]
        if not size.eq(size.wrap_int(1)).decide():
            if not expected.eq(strides[dim]).decide():
                return False
            expected = expected.mul(size)
    return True


def _rises(sizes: list[Node], strides: list[Node], order: tuple[int, ...]) -> bool:
    """Whether strides are those of a channels-last tensor, by the rule of c10/core/MemoryFormat.h: each at least what
    is inside of it, and not ambiguous where channels and rows have size 1."""
    least: Any = strides[1].wrap_int(0)
    if strides[1].eq(strides[1].wrap_int(0)).decide():  # type: ignore[attr-defined]
        return False
    for dim in order:
        size: Any = sizes[dim]
        stride: Any = strides[dim]
        if size.eq(size.wrap_int(0)).decide() or stride.lt(least).decide():
            return False
        if dim == 0 and least.eq(strides[1]).decide():
            return False
        least = stride
        if not size.le(size.wrap_int(1)).decide():
            least = least.mul(size)
    return True


def _arithmetic(symbol: str, plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Node]:
    def compute(self: Node, other: Node) -> Node:
        if isinstance(self, IntegerNode) and isinstance(other, IntegerNode):
            expression = self.conditions.kept_short(OPERATIONS[symbol](self.expression, other.expression))
            known = self.conditions.simplified(expression)
            return IntegerNode(expression if known.value is None else known, self.conditions)
        ratio = _scaled(self, other) or _scaled(other, self) if symbol == "*" else None
        return FloatNode(plain(self.hint, other.hint), _leaves(self, other), self.conditions, ratio)

    return compute


def _scaled(number: Node, scale: Node) -> Ratio | None:
    """The ratio of integers that a number times a known one is, as for the scale of an image; None where floats could
    round it."""
    if not isinstance(scale, FloatNode) or scale.leaves or not math.isfinite(scale.hint):
        return None
    by, over = scale.hint.as_integer_ratio()
    if isinstance(number, IntegerNode):
        of, under = number, 1
    elif isinstance(number, FloatNode) and number.ratio is not None:
        of, under = number.ratio
    else:
        return None
    if not 0 < by <= _MOST_EXACT or over * under > _MOST_EXACT or of.expression.bounds[0] < 0:
        return None
    return cast(IntegerNode, of.mul(of.wrap_int(by))), over * under  # type: ignore[attr-defined]


for _name, _symbol, _plain in (
    ("add", "+", operator.add),
    ("sub", "-", operator.sub),
    ("mul", "*", operator.mul),
    ("floordiv", "//", operator.floordiv),
    ("int_floordiv", "//", operator.floordiv),
    ("mod", "%", operator.mod),
    ("sym_min", "min", min),
    ("sym_max", "max", max),
):
    setattr(Node, _name, _arithmetic(_symbol, _plain))


def _power(self: Node, other: Node) -> Node:
    if isinstance(self, IntegerNode) and isinstance(other, IntegerNode) and other.decide() >= 0:
        result: Any = self.wrap_int(1)
        for _ in range(other.hint):
            result = result.mul(self)
        return cast(Node, result)
    return FloatNode(self.hint**other.hint, _leaves(self, other), self.conditions)


for _name in ("pow", "float_pow", "pow_by_natural"):
    setattr(Node, _name, _power)


def _is_limit(expression: Expression) -> bool:
    """Whether it is the end of a slice that has none, which torch compares with the size there is."""
    return expression.value is not None and expression.value >= _NO_END


def _is_of_sizes(expression: Expression) -> bool:
    """Whether it is a sum of a few sizes, which no memory lets come near the greatest integer."""
    return all(len(product) < 2 and abs(coefficient) < 1 << 16 for product, coefficient in expression.terms.items())


def _comparison(name: str) -> Callable[[Any, Any], Node]:
    plain = getattr(operator, name)

    def compare(self: Node, other: Node) -> Node:
        outcome = plain(self.hint, other.hint)
        conditions = self.conditions
        if not (isinstance(self, IntegerNode) and isinstance(other, IntegerNode)):
            leaves = _leaves(self, other)
            return TruthNode(
                lambda: None if leaves else outcome, lambda: (_settle(leaves), outcome)[1], outcome, conditions
            )
        # a > b is b < a, a <= b is not b < a
        swapped, negated = name in ("gt", "le"), name in ("le", "ge", "ne")
        a, b = (other, self) if swapped else (self, other)
        difference = a.expression - b.expression
        relation: Any = "==" if name in ("eq", "ne") else "<"
        if relation == "<" and _is_limit(a.expression) and _is_of_sizes(b.expression):
            return self.wrap_bool(negated)

        def known() -> bool | None:
            answer = conditions.known(difference, relation)
            return None if answer is None else answer != negated

        return TruthNode(
            known, lambda: conditions.decide(difference, relation) != negated, outcome, conditions,
            f"{self} {name} {other}",
        )

    return compare


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Node, _name, _comparison(_name))


class TruthNode(Node):
    """The outcome of a comparison; `ask` makes it a condition."""

    pytype = bool

    def __init__(
        self, known: Callable[[], bool | None], ask: Callable[[], bool], hint: bool, conditions: Conditions,
        text: str = "",
    ) -> None:
        self.known, self.decide = known, ask  # type: ignore[method-assign]
        self.hint, self.conditions, self.text = hint, conditions, text

    def __str__(self) -> str:
        return self.text or str(self.hint)

    def is_constant(self) -> bool:
        return self.known() is not None

    def sym_not(self) -> Node:
        def known() -> bool | None:
            answer = self.known()
            return None if answer is None else not answer

        return TruthNode(known, lambda: not self.decide(), not self.hint, self.conditions, f"not ({self})")

    def sym_and(self, other: Node) -> Node:
        def known() -> bool | None:
            a, b = self.known(), other.known()
            return False if a is False or b is False else True if a and b else None

        # where it is False, one operand that is says so
        ask = lambda: other.decide() and self.decide() if self.hint else self.decide()  # noqa: E731
        return TruthNode(known, ask, self.hint and other.hint, self.conditions, f"({self} and {other})")

    def sym_or(self, other: Node) -> Node:
        def known() -> bool | None:
            a, b = self.known(), other.known()
            return True if a or b else False if a is False and b is False else None

        ask = lambda: self.decide() if self.hint else other.decide() or self.decide()  # noqa: E731
        return TruthNode(known, ask, self.hint or other.hint, self.conditions, f"({self} or {other})")

    and_, or_ = sym_and, sym_or

    def sym_ite(self, then: Node, otherwise: Node) -> Node:
        return then if self.decide() else otherwise


class FloatNode(Node):
    """A float computed from integers; whoever wants to know it assumes these. `ratio`: the integers that it is the
    ratio of, where it is one without rounding, and not negative."""

    pytype = float

    def __init__(
        self, hint: float, leaves: tuple[IntegerNode, ...], conditions: Conditions, ratio: Ratio | None = None
    ) -> None:
        self.hint, self.leaves, self.conditions, self.ratio = hint, leaves, conditions, ratio

    def __str__(self) -> str:
        return str(self.hint)

    def known(self) -> float | None:
        return None if any(leaf.known() is None for leaf in self.leaves) else self.hint

    def decide(self) -> float:
        _settle(self.leaves)
        return cast(float, self.hint)

    def sym_float(self) -> Node:
        return self

    def pos(self) -> Node:
        return self

    def neg(self) -> Node:
        return FloatNode(-self.hint, self.leaves, self.conditions)

    def truediv(self, other: Node) -> Node:
        return FloatNode(self.hint / other.hint, _leaves(self, other), self.conditions)

    int_truediv = float_truediv = truediv


Ratio = tuple[IntegerNode, int]
_WHOLE: Final = ("floor", "ceil", "trunc", "sym_int")
_MOST_EXACT: Final = 1 << 10
"""Ratios of sizes by such numbers are exact as floats, whatever sizes fit into memory."""


def _unary(name: str, compute: Callable[[Any], Any]) -> Callable[[Any], Node]:
    def apply(self: Node) -> Node:
        ratio = self.ratio if isinstance(self, FloatNode) else None
        if ratio is not None and name in _WHOLE and ratio[0].expression.bounds[0] >= 0:
            of, under = ratio
            above: Any = of.add(of.wrap_int(under - 1)) if name == "ceil" else of  # type: ignore[attr-defined]
            return cast(Node, above.floordiv(of.wrap_int(under)))
        value = compute(self.hint)
        if type(value) is float:
            return FloatNode(value, _leaves(self), self.conditions)
        _settle(_leaves(self))
        return self.wrap_int(value)

    return apply


def _install_unary() -> None:
    for name in (
        "sqrt", "cos", "cosh", "sin", "sinh", "tan", "tanh", "asin", "acos", "atan", "exp", "log", "log2", "asinh",
    ):
        setattr(Node, f"sym_{name}", _unary(name, getattr(math, name)))
        setattr(Node, name, _unary(name, getattr(math, name)))
    for name, compute in (("floor", math.floor), ("ceil", math.ceil), ("trunc", math.trunc), ("sym_int", int)):
        setattr(FloatNode, name, _unary(name, compute))
        setattr(IntegerNode, name, lambda self: self)


_install_unary()


def _leaves(*nodes: Node) -> tuple[IntegerNode, ...]:
    found: dict[Any, IntegerNode] = {}
    for node in nodes:
        for leaf in node.leaves if isinstance(node, FloatNode) else (node,) if isinstance(node, IntegerNode) else ():
            if leaf.known() is None:
                found[leaf.expression] = leaf
    return tuple(found.values())


def _settle(leaves: tuple[IntegerNode, ...]) -> None:
    for leaf in leaves:
        leaf.decide()


def symbolic(expression: Expression, conditions: Conditions) -> Any:
    """The expression as a `torch.SymInt`, or as a plain int where it is a number."""
    value = expression.value
    return torch.SymInt(IntegerNode(expression, conditions)) if value is None else value


def expression_of(value: Any) -> Expression | None:
    """The expression of a size that `symbolic` made, or that was computed from such; a plain int is one too. None for
    torch's own symbols."""
    if isinstance(value, torch.SymInt):
        node = value.node
        return node.expression if isinstance(node, IntegerNode) else None
    return Expression.constant(value) if type(value) is int else None


def is_ours(value: Any) -> bool:
    """Whether a torch.SymInt, SymBool or SymFloat is one of these."""
    return isinstance(value.node, Node)
