"""Operators: arithmetic, comparison, identity, membership, subscripts, slices."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.bytecode.spellings import SUBSCRIPT
from framejit.interpreter.opcodes import opcode
from framejit.values.base import realize
from framejit.values.constant import ConstantValue, SliceValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

# CPython's NB_* order (Include/opcode.h).
_SYMBOLS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
_COMPARE = {"<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "LT": "lt", "LE": "le", "EQ": "eq", "NE": "ne", "GT": "gt", "GE": "ge"}


@opcode("BINARY_OP")
def binary_op(tx: Frame, ins: Instruction) -> None:
    index = int(ins.arg)
    if index == SUBSCRIPT:
        return binary_subscr(tx, ins)
    b, a = tx.pop(), tx.pop()
    tx.push(tx.binary(_SYMBOLS[index % 13], a, b, index >= 13))


@opcode("COMPARE_OP")
def compare_op(tx: Frame, ins: Instruction) -> None:
    b, a = tx.pop(), tx.pop()
    tx.push(tx.compare(_COMPARE[ins.arg.name], a, b))


@opcode("IS_OP")
def is_op(tx: Frame, ins: Instruction) -> None:
    b, a = tx.pop(), tx.pop()
    tx.push(ConstantValue(tx.same(a, b) != bool(ins.arg)))


@opcode("CONTAINS_OP")
def contains_op(tx: Frame, ins: Instruction) -> None:
    container, item = tx.pop(), tx.pop()
    tx.push(ConstantValue(tx.contains(container, item) != bool(ins.arg)))


@opcode("UNARY_NEGATIVE")
@opcode("UNARY_POSITIVE", until=(3, 11))
@opcode("UNARY_INVERT")
def unary(tx: Frame, ins: Instruction) -> None:
    tx.push(tx.unary({"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~"}[ins.name], tx.pop()))


@opcode("UNARY_NOT")
def unary_not(tx: Frame, ins: Instruction) -> None:
    tx.push(ConstantValue(not tx.truth(tx.pop())))


@opcode("TO_BOOL", since=(3, 13))
def to_bool(tx: Frame, ins: Instruction) -> None:
    tx.push(ConstantValue(tx.truth(tx.pop())))


@opcode("BINARY_SUBSCR", until=(3, 13))
def binary_subscr(tx: Frame, ins: Instruction) -> None:
    key, container = tx.pop(), tx.pop()
    tx.push(tx.subscript(container, key))


@opcode("STORE_SUBSCR")
def store_subscr(tx: Frame, ins: Instruction) -> None:
    key, container, value = tx.pop(), tx.pop(), tx.pop_unseen()
    _store(tx, container, key, value)


def _store(tx: Frame, container: Any, key: Any, value: Any) -> None:
    container = realize(tx, container)
    if isinstance(container, TensorValue):
        value = realize(tx, value)
    tx.call_special(container, "__setitem__", [key, value], "does not support item assignment")


@opcode("DELETE_SUBSCR")
def delete_subscr(tx: Frame, ins: Instruction) -> None:
    key, container = tx.pop(), tx.pop()
    tx.call_special(container, "__delitem__", [key], "doesn't support item deletion")


def _slice(tx: Frame, parts: list[Any]) -> Any:
    return ConstantValue(slice(*(p.constant() for p in parts))) if all(p.is_constant() for p in parts) else SliceValue(parts)


@opcode("BUILD_SLICE")
def build_slice(tx: Frame, ins: Instruction) -> None:
    parts = tx.pop_n(ins.arg)
    tx.push(_slice(tx, parts if len(parts) == 3 else [*parts, ConstantValue(None)]))


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(tx: Frame, ins: Instruction) -> None:
    stop, start, container = tx.pop(), tx.pop(), tx.pop()
    tx.push(tx.subscript(container, _slice(tx, [start, stop, ConstantValue(None)])))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(tx: Frame, ins: Instruction) -> None:
    stop, start, container, value = tx.pop(), tx.pop(), tx.pop(), tx.pop_unseen()
    _store(tx, container, _slice(tx, [start, stop, ConstantValue(None)]), value)
