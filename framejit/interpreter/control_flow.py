"""Jumps, loops, return, generators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from framejit.bytecode.loops import CLEARS_AWAY, HAS_NULL, ITERATOR_SLOTS
from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.frame import Returned, Yielded
from framejit.interpreter.opcodes import breaks, opcode
from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE
from framejit.values.objects.exceptions import ExceptionValue
from framejit.values.objects.generators import GeneratorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


def _target(ins: Instruction) -> int:
    assert ins.target is not None
    return ins.target


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(tx: Frame, ins: Instruction) -> int:
    return _target(ins)


def _is_none(tx: Frame, value: Value) -> bool:
    return value.is_constant() and value.constant() is None


@opcode("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE", until=(3, 11))
@opcode("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", since=(3, 12))
def pop_jump(tx: Frame, ins: Instruction) -> int | None:
    return _target(ins) if tx.truth(tx.pop()) == ins.name.endswith("TRUE") else None


@opcode("POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE", until=(3, 11))
@opcode("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", since=(3, 12))
def pop_jump_none(tx: Frame, ins: Instruction) -> int | None:
    return _target(ins) if _is_none(tx, tx.pop()) != ins.name.endswith("NOT_NONE") else None


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", until=(3, 11))
def jump_or_pop(tx: Frame, ins: Instruction) -> int | None:
    if tx.truth(tx.peek(1)) == (ins.name == "JUMP_IF_TRUE_OR_POP"):
        return _target(ins)
    tx.pop()
    return None


# ---- loops ----------------------------------------------------------------------------------------


@opcode("GET_ITER")
def get_iter(tx: Frame, ins: Instruction) -> None:
    tx.push(tx.get_iter(tx.pop()))
    if HAS_NULL:
        tx.push_null()


@opcode("FOR_ITER")
def for_iter(tx: Frame, ins: Instruction) -> int | None:
    try:
        item = tx.next(tx.peek(ITERATOR_SLOTS))
    except Exhausted:
        tx.pop_n(ITERATOR_SLOTS)
        return _target(ins) + len(CLEARS_AWAY)
    tx.push(item)
    return None


@opcode("POP_ITER", since=(3, 14))
def pop_iter(tx: Frame, ins: Instruction) -> None:
    """Only reached where a loop is left before its end."""
    check_end(tx, tx.pop_n(ITERATOR_SLOTS)[0], 0)


# ---- leaving --------------------------------------------------------------------------------------


@opcode("RETURN_VALUE")
@opcode("RETURN_CONST", since=(3, 12), until=(3, 13))
def return_value(tx: Frame, ins: Instruction) -> None:
    result = from_python(ins.arg) if ins.name == "RETURN_CONST" else tx.pop_unseen()
    if tx.caller is not None:
        variables = list(tx.locals.values())
        for value in variables:
            if value is not result:
                check_end(tx, value, variables.count(value))
    raise Returned(result)


# ---- generators -------------------------------------------------------------------------------------


@opcode("RETURN_GENERATOR")
def return_generator(tx: Frame, ins: Instruction) -> None:
    """The frame is already a generator's: the value RETURN_GENERATOR leaves is popped by the next instruction."""
    tx.push(NONE)


@opcode("YIELD_VALUE")
def yield_value(tx: Frame, ins: Instruction) -> None:
    value = tx.pop_unseen()
    tx.pc += 1
    raise Yielded(value)


@opcode("GET_YIELD_FROM_ITER", until=(3, 14))
def get_yield_from_iter(tx: Frame, ins: Instruction) -> None:
    tx.push(tx.get_iter(tx.pop()))


@opcode("SEND")
def send(tx: Frame, ins: Instruction) -> int | None:
    sent, receiver = tx.pop(), tx.peek(ITERATOR_SLOTS)
    try:
        if isinstance(receiver, GeneratorValue):
            item = receiver.resume(tx, sent, None)
        else:
            item = tx.next(receiver) if sent is NONE or sent.is_constant() and sent.constant() is None else receiver.call_method(tx, "send", [sent], {})
    except Exhausted as e:
        result: Value = receiver.result if isinstance(receiver, GeneratorValue) else NONE if e.value is None else e.value
    except Raised as e:
        if not issubclass(e.value.cls, StopIteration):
            raise
        result = e.value.args[0] if e.value.args else NONE
    else:
        tx.push(item)
        return None
    if sys.version_info < (3, 12):  # later versions keep the receiver for END_SEND
        tx.pop()
    tx.push(result)
    return _target(ins)


@opcode("END_SEND", since=(3, 12))
def end_send(tx: Frame, ins: Instruction) -> None:
    value = tx.pop()
    tx.pop_n(ITERATOR_SLOTS)
    tx.push(value)


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(tx: Frame, ins: Instruction) -> None:
    exc = tx.pop()
    tx.pop_n(1 + ITERATOR_SLOTS)  # what was sent last, and the receiver
    if isinstance(exc, ExceptionValue) and issubclass(exc.cls, StopIteration):
        tx.push(NONE)
        if HAS_NULL:
            tx.push_null()
        tx.push(exc.args[0] if exc.args else NONE)
        return
    assert isinstance(exc, ExceptionValue)
    raise Raised(exc)


@opcode("ASYNC_GEN_WRAP", until=(3, 11))
def async_gen_wrap(tx: Frame, ins: Instruction) -> None:
    raise Unsupported("an async generator", "FJ117")


breaks("async code is not captured", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL", "END_ASYNC_FOR")
breaks(
    "a class body, exec or module code",
    "LOAD_NAME",
    "STORE_NAME",
    "DELETE_NAME",
    "SETUP_ANNOTATIONS",
    "LOAD_LOCALS",
    "LOAD_FROM_DICT_OR_DEREF",
    "LOAD_FROM_DICT_OR_GLOBALS",
)
breaks("printing an expression in the interactive shell", "PRINT_EXPR")
breaks("an import of * ", "IMPORT_STAR")
breaks("never executed by compiled code", "INTERPRETER_EXIT", "RESERVED", "ENTER_EXECUTOR", "EXIT_INIT_CHECK", "TRACE_RECORD")
breaks("an except* block, or type parameters of a function made here", "CALL_INTRINSIC_2")
