"""Operators: arithmetic, comparison, identity, membership, subscripts, slices."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from framejit.bytecode.spellings import SUBSCRIPT
from framejit.interpreter.opcodes import opcode
from framejit.interpreter.selected_branches import Meeting, truth_at_jump
from framejit.values.base import realize
from framejit.values.constant import ConstantValue, SliceValue
from framejit.values.runtime_numbers.changed_elements import changed_element
from framejit.values.runtime_numbers.read_number import negated, read_bool
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

# CPython's NB_* order (Include/opcode.h).
_SYMBOLS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
_COMPARE = {
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge", "LT": "lt", "LE": "le", "EQ": "eq",
    "NE": "ne", "GT": "gt", "GE": "ge",
}


@opcode("BINARY_OP")
def binary_op(frame: Frame, ins: Instruction) -> None:
    index = int(ins.arg)
    if index == SUBSCRIPT:
        binary_subscr(frame, ins)
        return
    b, a = frame.pop(), frame.pop()
    symbol, at = _SYMBOLS[index % 13], _stored_at(frame) if index >= 13 else []
    changed = changed_element(frame, symbol, a, b, at) if at else None
    frame.push(frame.binary(symbol, a, b, index >= 13) if changed is None else changed)


def _stored_at(frame: Frame) -> list[Any]:
    """The container and the key that the instructions behind this one store its result under, as those of `x[i] += y`
    do; empty for other instructions."""
    for operands, store in ((2, "STORE_SUBSCR"), (3, "STORE_SLICE")):
        behind = frame.instructions[frame.pc + 1 : frame.pc + 1 + operands + 1]
        swaps = [(ins.name, ins.arg) for ins in behind[:-1]]
        if swaps == [("SWAP", depth) for depth in range(operands + 1, 1, -1)] and behind[-1].name == store:
            return frame.stack[-operands:]
    return []


@opcode("COMPARE_OP")
def compare_op(frame: Frame, ins: Instruction) -> None:
    b, a = frame.pop(), frame.pop()
    frame.push(frame.compare(_COMPARE[ins.arg.name], a, b))


@opcode("IS_OP")
def is_op(frame: Frame, ins: Instruction) -> None:
    b, a = frame.pop(), frame.pop()
    frame.push(ConstantValue(frame.same(a, b) != bool(ins.arg)))


@opcode("CONTAINS_OP")
def contains_op(frame: Frame, ins: Instruction) -> None:
    container, item = frame.pop(), frame.pop_unseen()
    frame.push(ConstantValue(frame.contains(container, item) != bool(ins.arg)))


@opcode("UNARY_NEGATIVE")
@opcode("UNARY_POSITIVE", until=(3, 11))
@opcode("UNARY_INVERT")
def unary(frame: Frame, ins: Instruction) -> None:
    frame.push(frame.unary({"UNARY_NEGATIVE": "-", "UNARY_POSITIVE": "+", "UNARY_INVERT": "~"}[ins.name], frame.pop()))


@opcode("UNARY_NOT")
def unary_not(frame: Frame, ins: Instruction) -> None:
    frame.push(negated(frame, realize(frame, frame.pop())))


@opcode("TO_BOOL", since=(3, 13))
def to_bool(frame: Frame, ins: Instruction) -> int | None:
    value = realize(frame, frame.pop())
    if frame.instructions[frame.pc + 1].name == "UNARY_NOT":
        frame.push(read_bool(frame, value) or ConstantValue(frame.truth(value)))
        return None
    truth = truth_at_jump(frame, value, frame.pc + 1)
    if isinstance(truth, Meeting):
        return truth.place
    frame.push(ConstantValue(truth))
    return None


@opcode("BINARY_SUBSCR", until=(3, 13))
def binary_subscr(frame: Frame, ins: Instruction) -> None:
    key, container = frame.pop(), frame.pop()
    frame.push(frame.subscript(container, key))


@opcode("STORE_SUBSCR")
def store_subscr(frame: Frame, ins: Instruction) -> None:
    key, container, value = frame.pop(), frame.pop(), frame.pop_unseen()
    _store(frame, container, key, value)


def _store(frame: Frame, container: Any, key: Any, value: Any) -> None:
    container = realize(frame, container)
    if isinstance(container, TensorValue):
        value = realize(frame, value)
    frame.call_special(container, "__setitem__", [key, value], "does not support item assignment")


@opcode("DELETE_SUBSCR")
def delete_subscr(frame: Frame, ins: Instruction) -> None:
    key, container = frame.pop(), frame.pop()
    frame.call_special(container, "__delitem__", [key], "doesn't support item deletion")


def _slice(frame: Frame, parts: list[Any]) -> Any:
    return (
        ConstantValue(slice(*(p.constant() for p in parts)))
        if all(p.is_constant() for p in parts)
        else SliceValue(parts)
    )


@opcode("BUILD_SLICE")
def build_slice(frame: Frame, ins: Instruction) -> None:
    parts = frame.pop_n(ins.arg)
    frame.push(_slice(frame, parts if len(parts) == 3 else [*parts, ConstantValue(None)]))


@opcode("BINARY_SLICE", since=(3, 12))
def binary_slice(frame: Frame, ins: Instruction) -> None:
    stop, start, container = frame.pop(), frame.pop(), frame.pop()
    frame.push(frame.subscript(container, _slice(frame, [start, stop, ConstantValue(None)])))


@opcode("STORE_SLICE", since=(3, 12))
def store_slice(frame: Frame, ins: Instruction) -> None:
    stop, start, container, value = frame.pop(), frame.pop(), frame.pop(), frame.pop_unseen()
    _store(frame, container, _slice(frame, [start, stop, ConstantValue(None)]), value)
