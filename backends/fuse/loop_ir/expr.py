"""Scalar expressions: what a kernel computes for one element.

Expressions form a directed acyclic graph in which equal nodes are one object, so that common subexpressions are found
by identity. The operations that exist are declared in `OPERATIONS`; how each is carried out is the code generators'
business.

A node's dtype is that of the value in a register. Values of bfloat16 and float16 are computed with in float32: a node
has such a dtype only as a load or as the result of a `cast` (which rounds), and is cast to float32 before anything else
is done with it.
"""
from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import torch

from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.sizes.symbolic_size import SymbolicSize

COMPUTE: Final = {torch.bfloat16: torch.float32, torch.float16: torch.float32}
"""The dtype in which values of a dtype are computed, where it is another."""

SENSITIVE: Final = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "floor", "ceil", "trunc", "round", "sign", "floordiv", "truncdiv", "mod",
    "fmod", "isnan", "isinf", "signbit", "nextafter", "bitcast",
})
"""Operations whose result may jump when an operand changes by a little."""

_SEES_SIGNS: Final = ("isnan", "signbit", "copysign")
"""Operations that see of their last operand whether it is nan, or its sign."""

SAME, BOOL = "same", "bool"

OPERATIONS: Final[dict[str, tuple[int, str]]] = {
    # name: (number of operands, dtype of the result). Operands of one operation have one dtype; `where` has a bool
    # first. Integers wrap around. Floats follow IEEE 754; `maximum`, `minimum` give nan if either operand is nan.
    **dict.fromkeys(
        (
            "add", "sub", "mul", "maximum", "minimum", "fmax", "fmin", "pow", "atan2", "copysign", "hypot", "fmod",
            "nextafter",
        ),
        (2, SAME),
    ),
    **dict.fromkeys(("div",), (2, SAME)),  # of floats
    **dict.fromkeys(
        ("floordiv", "truncdiv", "mod"), (2, SAME)
    ),  # floordiv and mod round to minus infinity, as Python does; of integers or floats
    **dict.fromkeys(
        ("bitand", "bitor", "bitxor", "shl", "shr"), (2, SAME)
    ),  # of integers; bitand, bitor, bitxor of bools too
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), (2, BOOL)),
    **dict.fromkeys(("neg", "abs", "sign", "bitnot"), (1, SAME)),  # bitnot of a bool is logical
    **dict.fromkeys(
        (
            "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos",
            "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "lgamma",
            "sigmoid", "floor", "ceil", "trunc", "round",
        ),
        (1, SAME),
    ),
    **dict.fromkeys(("isnan", "isinf", "signbit"), (1, BOOL)),
    "where": (3, SAME),
    "philox": (3, SAME),  # of int64: a key, the number of a draw from 0 to 2**32 - 1, a place from 0 on
}
"""Operations on scalars. `round` rounds halves to even; `sign` of nan is nan; `shr` of a signed integer is
arithmetic. `philox` gives a random word, from 0 to 2**32 - 1: see `random_numbers/operations.py`."""

REDUCTIONS: Final = ("sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "xor")
"""Kinds of reductions. `max` and `min` give nan if any element is nan; argmax and argmin give the first position
(int64, counted in row-major order of the kernel's reduction loops) of the greatest or least element, nan counting as
greater (or less) than all. `any` and `all` are of bools."""

SCANS: Final = ("sum", "prod", "max", "min", "argmax", "argmin", "logsumexp")
"""Kinds of scans, all inclusive. `max` and `min` give the last of equal elements (0.0 or -0.0), and nan from the first
nan on; argmax and argmin give the position (int64, counted as that of a reduction) of the last of equal elements, or of
the last nan. `logsumexp` is log(sum(exp(x)))."""


class Expr:
    """A node. `op` is a name in OPERATIONS, or one of

    - `load`: `attr` = (buffer name, Index in elements from the buffer's start)
    - `const`: `attr` = a Python number
    - `index`: `attr` = Index; its value as int64
    - `cast`: of one operand to `dtype`: C's conversion, floats to integers truncate, to bool is `!= 0`
    - `bitcast`: of one operand to `dtype` of the same width
    - `reduce`: `attr` = kind of the reduction, of one operand over all reduction loops of the kernel; the accumulator
      has the node's dtype
    - `scan`: `attr` = kind of the scan, of one operand: in each turn of the reduction loops the reduction of what it
      had in the turns up to this one, in row-major order of the kernel's reduction loops; the accumulator has the
      node's dtype
    - `masked`: operands (condition, value, other): as `where`, but nothing in `value` may be loaded where the condition
      is false
    """

    __slots__ = ("op", "args", "dtype", "attr", "_vars", "_loads", "__weakref__")

    op: str
    args: tuple[Expr, ...]
    dtype: torch.dtype
    attr: Any
    _vars: frozenset[Var] | None
    _loads: tuple[Expr, ...] | None

    def substitute(self, replacement: Mapping[Var, Index], loads: Callable[[Expr], Expr | None] | None = None) -> Expr:
        """This expression with loop variables replaced. `loads` may give, for a load (already with the new variables),
        what to put in its place."""
        done = Substitution(replacement, loads)
        return done[self]

    def walk(self) -> Iterator[Expr]:
        """Each node once, operands before what uses them. Expressions inside indirect indices are included."""
        seen: set[Expr] = set()
        stack = [self]
        while stack:
            node = stack[-1]
            missing = () if node in seen else [operand for operand in node.operands() if operand not in seen]
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if node not in seen:
                seen.add(node)
                yield node

    def operands(self) -> tuple[Expr, ...]:
        """The arguments, and the expressions that its index needs."""
        if self.op == "load":
            index = self.attr[1]
        elif self.op == "index":
            index = self.attr
        else:
            return self.args
        return tuple(atom.value for atom in index.indirects) if index.indirects else ()

    def loads(self) -> tuple[Expr, ...]:
        """The loads in the expression."""
        if self._loads is not None:
            return self._loads
        found = tuple(node for node in self.walk() if node.op == "load")
        if self.op != "load":  # which would then hold itself
            self._loads = found
        return found

    def vars(self) -> frozenset[Var]:
        """The loop variables it depends on; those bound by a reduction inside it are included."""
        for node in self.walk():  # operands first: no deep recursion
            if node._vars is None:
                node._vars = frozenset().union(*(operand._vars or () for operand in node.operands()), _own_vars(node))
        assert self._vars is not None
        return self._vars

    def text(self, operands: Sequence[str]) -> str:
        """The node as text, given that of its operands."""
        if self.op == "load":
            return f"{self.attr[0]}[{self.attr[1]}]"
        if self.op == "const":
            return _shortest(self.attr) if self.dtype == torch.float32 else str(self.attr)
        if self.op == "index":
            return f"({self.attr})"
        dtype = str(self.dtype).removeprefix("torch.")
        name = {
            "reduce": f"reduce_{self.attr}", "scan": f"scan_{self.attr}", "cast": dtype,
            "bitcast": f"bitcast_{dtype}",
        }.get(self.op, self.op)
        return f"{name}({', '.join(operands)})"

    def __str__(self) -> str:
        done: dict[Expr, str] = {}
        for node in self.walk():
            done[node] = shortened(node.text([done[operand] for operand in node.args]))
        return done[self]

    __repr__ = __str__


def shortened(text: str, most: int = 400) -> str:
    """The text, or its beginning and end: an expression's text may be far longer than the expression, which shares its
    parts."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


_nodes: WeakValueDictionary[tuple[Any, ...], Expr] = WeakValueDictionary()


def _own_vars(node: Expr) -> set[Var]:
    if node.op == "load":
        return node.attr[1].vars()
    return node.attr.vars() if node.op == "index" else set()


def _make(op: str, args: tuple[Expr, ...], dtype: torch.dtype, attr: Any = None) -> Expr:
    # the numbers 1, 1.0 and True are equal, 0.0 and -0.0 too, and nan is not equal to itself: their text tells them
    # apart
    key = (op, args, dtype, repr(attr) if op == "const" else attr)
    node = _nodes.get(key)
    if node is None:
        node = object.__new__(Expr)
        node.op, node.args, node.dtype, node.attr, node._vars, node._loads = op, args, dtype, attr, None, None
        _nodes[key] = node
    return node


class Substitution(dict[Expr, Expr]):
    """Memory of one substitution; nodes are made new from the leaves up, so that deep expressions need no deep
    recursion."""

    def __init__(self, replacement: Mapping[Var, Index], loads: Callable[[Expr], Expr | None] | None) -> None:
        super().__init__()
        self.replacement, self.loads = replacement, loads

    def __missing__(self, root: Expr) -> Expr:
        for node in root.walk():
            if node not in self:
                self[node] = self._new(node)
        return self[root]

    def _new(self, node: Expr) -> Expr:
        if node.op == "load":
            name, index = node.attr
            made = load(name, index.substitute(self.replacement, self), node.dtype)
            return (self.loads(made) if self.loads else None) or made
        if node.op == "index":
            return index_value(node.attr.substitute(self.replacement, self))
        if not node.args:
            return node
        if node.op == "cast":
            return cast(self[node.args[0]], node.dtype)
        # what takes the place of a load of bfloat16 or float16 may be the float32 value before it was rounded; only a
        # cast may see that
        return _make(node.op, tuple(cast(self[operand], operand.dtype) for operand in node.args), node.dtype, node.attr)


def jumps(value: Expr, operands: Collection[Expr]) -> bool:
    """Whether a value that is made of operands may jump when one of them changes by a little."""
    stack, seen = [value], {*operands}
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            if _jumps(node):
                return True
            stack.extend(node.args)
    return False


def _jumps(node: Expr) -> bool:
    """Whether its result may jump when an operand changes by a little."""
    if node.op == "cast":
        return not node.dtype.is_floating_point and node.args[0].dtype.is_floating_point
    return node.op in SENSITIVE and node.op not in _SEES_SIGNS  # which rounding does not change


def load(buffer: str, index: Index, dtype: torch.dtype) -> Expr:
    """The element of a buffer at an index; of the buffer's dtype."""
    return _make("load", (), dtype, (buffer, index))


def const(value: bool | int | float, dtype: torch.dtype) -> Expr:
    """A number. An integer dtype wraps it around, float32 rounds it. A size that is not known is no constant, but the
    value of an index."""
    if isinstance(value, SymbolicSize):
        return cast(index_value(Index({}, value)), dtype)
    if dtype.is_floating_point:
        value = nearest(value, dtype)
    elif dtype == torch.bool:
        value = bool(value)
    else:
        bits = torch.iinfo(dtype).bits
        value = int(value) & ((1 << bits) - 1)
        if dtype.is_signed and value >> (bits - 1):
            value -= 1 << bits
    return _make("const", (), dtype, value)


def nearest(value: bool | int | float, dtype: torch.dtype) -> float:
    """A number as a dtype of floats holds it, halves to even; what is too large becomes infinite. bfloat16 and float16
    are rounded to by way of float32, as eager does."""
    value = float(value)
    if dtype == torch.float64:
        return value
    value = ctypes.c_float(value).value
    if dtype == torch.float32 or not math.isfinite(value):
        return value
    if dtype == torch.float16:
        try:
            return float(struct.unpack("e", struct.pack("e", value))[0])
        except OverflowError:
            return math.copysign(math.inf, value)
    bits, = struct.unpack("I", struct.pack("f", value))
    bits += 0x7FFF + (bits >> 16 & 1)  # may carry into the exponent, and make infinity of the largest
    return float(struct.unpack("f", struct.pack("I", bits & 0xFFFF0000))[0])


def _shortest(value: float) -> str:
    """A float32 in as few digits as tell it from others."""
    shorter = (float(f"{value:.{digits}g}") for digits in range(1, 9))
    return str(next((number for number in shorter if nearest(number, torch.float32) == value), value))


def index_value(index: Index | Var) -> Expr:
    """The value of an index as int64."""
    index = Index.of(index)
    return (
        _make("index", (), torch.int64, index)
        if index.terms or isinstance(index.const, SymbolicSize)
        else const(index.const, torch.int64)
    )


def cast(value: Expr, dtype: torch.dtype) -> Expr:
    """The value in another dtype; rounds where it has to."""
    if value.dtype == dtype:
        return value
    if value.dtype in COMPUTE and value.op == "cast" and value.args[0].op == "const":
        number = value.args[0]
        return cast(const(nearest(number.attr, value.dtype), COMPUTE[value.dtype]), dtype)
    if value.op == "const" and dtype not in COMPUTE:
        if dtype.is_floating_point or not value.dtype.is_floating_point or abs(value.attr) <= 2**31:
            return const(value.attr, dtype)
    return _make("cast", (value,), dtype)


def rounded(value: Expr, dtype: torch.dtype) -> Expr:
    """The value without what `dtype` has no room for, in the dtype that values of `dtype` are computed in."""
    return cast(cast(value, dtype), COMPUTE.get(dtype, dtype))


def _unrounded(value: Expr) -> Expr:
    """The value before it was rounded to bfloat16 or float16. That makes a number neither nan nor negative, but may
    take a nan's sign away."""
    half = value.args[0] if value.op == "cast" else value
    if half is not value and half.op == "cast" and half.dtype in COMPUTE and half.args[0].dtype == value.dtype:
        return _unrounded(half.args[0])
    return value


def rounded_once(value: Expr) -> Expr:
    """The value without the roundings to bfloat16 and float16 of what has been rounded to them. To be asked when
    nothing will take the place of a load any more."""
    done: dict[Expr, Expr] = {}
    for node in value.walk():
        args = tuple(done[operand] for operand in node.args)
        if node.op == "cast" and node.dtype in COMPUTE and args[0].op == "cast" and args[0].args[0].dtype == node.dtype:
            done[node] = args[0].args[0]
        else:
            done[node] = _make(node.op, args, node.dtype, node.attr) if args else node
    return done[value]


def bitcast(value: Expr, dtype: torch.dtype) -> Expr:
    """The bits of a value taken as another dtype of the same width."""
    return value if value.dtype == dtype else _make("bitcast", (value,), dtype)


def reduce(kind: str, value: Expr, dtype: torch.dtype | None = None) -> Expr:
    """The reduction of a value over the kernel's reduction loops, accumulated in `dtype` (the value's own if None)."""
    if kind not in REDUCTIONS:
        raise ValueError(f"there is no reduction {kind!r}")
    if kind in ("argmax", "argmin"):
        return _make("reduce", (value,), torch.int64, kind)
    return _make("reduce", (cast(value, dtype) if dtype is not None else value,), dtype or value.dtype, kind)


def scan(kind: str, value: Expr) -> Expr:
    """The scan of a value over the kernel's reduction loops, accumulated in the value's dtype."""
    if kind not in SCANS:
        raise ValueError(f"there is no scan {kind!r}")
    return _make("scan", (value,), torch.int64 if kind in ("argmax", "argmin") else value.dtype, kind)


def is_ordered(node: Expr) -> bool:
    """Whether its value depends on the order of the kernel's reduction loops."""
    return node.op == "scan" or (node.op == "reduce" and node.attr in ("argmax", "argmin"))


def masked(condition: Expr, value: Expr, other: Expr) -> Expr:
    """`value` where the condition holds, and only there is anything in it loaded; else `other`."""
    return _make("masked", (condition, value, other), value.dtype)


def op(name: str, *operands: Expr) -> Expr:
    """An operation of OPERATIONS. Raises ValueError for one that does not exist, or operands that do not fit
    together."""
    arity, result = OPERATIONS.get(name, (-1, SAME))
    values = operands[1:] if name == "where" else operands
    if len(operands) != arity:
        raise ValueError(f"{name!r} with {len(operands)} operands is not an operation")
    if any(value.dtype != values[0].dtype for value in values) or values[0].dtype in COMPUTE:
        raise ValueError(
            f"{name!r} does not take operands of dtypes {', '.join(str(value.dtype) for value in operands)}"
        )
    if name in _SEES_SIGNS:
        operands = (*operands[:-1], _unrounded(operands[-1]))
    return _make(name, operands, torch.bool if result == BOOL else values[0].dtype)
