"""Size programs in words: the postfix code that native/guards/size_program.h describes, written as Python would write
it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from framejit import _native as native

Program = tuple[int, ...]


NUMBER = -1
"""In place of a dimension: what is read is an int."""


class SizeRead(NamedTuple):
    """A size or stride that a program reads: `op` is S_SIZE or S_STRIDE, `tensor` a position among the program's
    tensors.

    The size NUMBER of what stands there is the int that it is itself.
    """

    op: int
    tensor: int
    dim: int

    def text(self, names: Sequence[str]) -> str:
        if self.dim == NUMBER:
            return names[self.tensor]
        return f"{names[self.tensor]}.{'size' if self.op == native.S_SIZE else 'stride'}({self.dim})"


class _Constant(NamedTuple):
    value: int


class _Operation(NamedTuple):
    op: int
    operands: tuple[_Term, ...]


_Term = SizeRead | _Constant | _Operation

_SIGNS = {
    native.S_NOT: ("not", 1),
    native.S_EQ: ("==", 2),
    native.S_LT: ("<", 2),
    native.S_ADD: ("+", 3),
    native.S_MUL: ("*", 4),
    native.S_FLOORDIV: ("//", 4),
    native.S_MOD: ("%", 4),
}
"""How an operation is written, and how tightly it binds."""
_COMPARES = 2
_ATOM = 5
_FUNCTIONS = {native.S_MIN: "min", native.S_MAX: "max"}
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">=": "<="}
_OPPOSITE = {"==": "!=", "<": ">="}


def size_text(program: Program, names: Sequence[str]) -> str:
    """The program as an expression, like `x.size(0) % 8 == 0`. `names[i]` is the name of tensor i. The program is one
    that the native core takes."""
    return _written(_parse(program), names)[0]


def sizes_read(program: Program) -> list[SizeRead]:
    """The sizes and strides that the program reads, each once, in the order of its text."""
    found: dict[SizeRead, None] = {}
    _collect(_parse(program), found)
    return list(found)


def native_sizes(slots: tuple[int, ...], program: Program) -> tuple[tuple[int, ...], Program]:
    """Slots and program as the native check takes them: the slot of an int is given as its complement, and the int is
    read as the size of dimension 0."""
    code = list(program)
    numbers: set[int] = set()
    position = 0
    while position < len(code):
        if code[position] in (native.S_SIZE, native.S_STRIDE):
            if code[position + 2] == NUMBER:
                numbers.add(code[position + 1])
                code[position + 2] = 0
            position += 3
        else:
            position += 2 if code[position] == native.S_CONST else 1
    return tuple(~slot if i in numbers else slot for i, slot in enumerate(slots)), tuple(code)


def _parse(program: Program) -> _Term:
    stack: list[_Term] = []
    items = iter(program)
    for op in items:
        if op in (native.S_SIZE, native.S_STRIDE):
            stack.append(SizeRead(op, next(items), next(items)))
        elif op == native.S_CONST:
            stack.append(_Constant(next(items)))
        else:
            n = 1 if op == native.S_NOT else 2
            stack[-n:] = [_Operation(op, tuple(stack[-n:]))]
    (term,) = stack
    return term


def _collect(term: _Term, found: dict[SizeRead, None]) -> None:
    if isinstance(term, SizeRead):
        found[term] = None
    elif isinstance(term, _Operation):
        for operand in term.operands:
            _collect(operand, found)


def _written(term: _Term, names: Sequence[str]) -> tuple[str, int]:
    """The text and how tightly its outermost operation binds."""
    if isinstance(term, SizeRead):
        return term.text(names), _ATOM
    if isinstance(term, _Constant):
        return str(term.value), _ATOM
    if term.op in _FUNCTIONS:
        return f"{_FUNCTIONS[term.op]}({', '.join(_written(t, names)[0] for t in term.operands)})", _ATOM
    sign, binds = _SIGNS[term.op]
    if term.op == native.S_NOT:
        inner = term.operands[0]
        if isinstance(inner, _Operation) and inner.op in _SIGNS and _SIGNS[inner.op][1] == _COMPARES:
            return _comparison(_OPPOSITE[_SIGNS[inner.op][0]], inner, names), _COMPARES
        return f"not {_operand(inner, binds, names)}", binds
    if binds == _COMPARES:
        return _comparison(sign, term, names), binds
    left, right = term.operands
    return f"{_operand(left, binds, names)} {sign} {_operand(right, binds + 1, names)}", binds


def _comparison(sign: str, term: _Operation, names: Sequence[str]) -> str:
    left, right = term.operands
    if isinstance(left, _Constant) and not isinstance(right, _Constant):
        left, right, sign = right, left, _MIRRORED[sign]
    # comparisons chain in Python, so that one inside another needs its parentheses on both sides
    return f"{_operand(left, _COMPARES + 1, names)} {sign} {_operand(right, _COMPARES + 1, names)}"


def _operand(term: _Term, least: int, names: Sequence[str]) -> str:
    text, binds = _written(term, names)
    return text if binds >= least else f"({text})"
