"""Jumps, loops, return, generators."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from framejit.bytecode.for_iterators import CLEARS_AWAY, HAS_NULL, ITERATOR_SLOTS
from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.frame import Returned, Yielded
from framejit.interpreter.opcodes import breaks, opcode
from framejit.interpreter.selected_branches import Meeting, truth_at_jump
from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, is_none
from framejit.values.objects.exception_values import ExceptionValue
from framejit.values.objects.functions.generators import GeneratorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame


def _target(ins: Instruction) -> int:
    assert ins.target is not None
    return ins.target


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(frame: Frame, ins: Instruction) -> int:
    return _target(ins)


@opcode(
    "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
    "POP_JUMP_BACKWARD_IF_FALSE", until=(3, 11),
)
@opcode("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", since=(3, 12))
def pop_jump(frame: Frame, ins: Instruction) -> int | None:
    truth = truth_at_jump(frame, frame.pop(), frame.pc)
    if isinstance(truth, Meeting):
        return truth.place
    return _target(ins) if truth == ins.name.endswith("TRUE") else None


@opcode(
    "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE", until=(3, 11),
)
@opcode("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE", since=(3, 12))
def pop_jump_none(frame: Frame, ins: Instruction) -> int | None:
    return _target(ins) if is_none(frame.pop()) != ins.name.endswith("NOT_NONE") else None


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP", until=(3, 11))
def jump_or_pop(frame: Frame, ins: Instruction) -> int | None:
    if frame.truth(frame.peek(1)) == (ins.name == "JUMP_IF_TRUE_OR_POP"):
        return _target(ins)
    frame.pop()
    return None


# ---- loops ----------------------------------------------------------------------------------------


@opcode("GET_ITER")
def get_iter(frame: Frame, ins: Instruction) -> None:
    frame.push(frame.get_iter(frame.pop()))
    if HAS_NULL:
        frame.push_null()


@opcode("FOR_ITER")
def for_iter(frame: Frame, ins: Instruction) -> int | None:
    try:
        item = frame.next(frame.peek(ITERATOR_SLOTS))
    except Exhausted:
        frame.pop_n(ITERATOR_SLOTS)
        return _target(ins) + len(CLEARS_AWAY)
    frame.push(item)
    return None


@opcode("POP_ITER", since=(3, 14))
def pop_iter(frame: Frame, ins: Instruction) -> None:
    """Only reached where a loop is left before its end."""
    check_end(frame, frame.pop_n(ITERATOR_SLOTS)[0], 0)


# ---- leaving --------------------------------------------------------------------------------------


@opcode("RETURN_VALUE")
@opcode("RETURN_CONST", since=(3, 12), until=(3, 13))
def return_value(frame: Frame, ins: Instruction) -> None:
    result = from_python(ins.arg) if ins.name == "RETURN_CONST" else frame.pop_unseen()
    if frame.caller is not None:
        variables = list(frame.locals.values())
        for value in variables:
            if value is not result:
                check_end(frame, value, variables.count(value))
    raise Returned(result)


# ---- generators -------------------------------------------------------------------------------------


@opcode("RETURN_GENERATOR")
def return_generator(frame: Frame, ins: Instruction) -> None:
    """The frame is already a generator's: the value RETURN_GENERATOR leaves is popped by the next instruction."""
    frame.push(NONE)


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, ins: Instruction) -> None:
    value = frame.pop_unseen()
    frame.pc += 1
    raise Yielded(value)


@opcode("GET_YIELD_FROM_ITER", until=(3, 14))
def get_yield_from_iter(frame: Frame, ins: Instruction) -> None:
    frame.push(frame.get_iter(frame.pop()))


@opcode("SEND")
def send(frame: Frame, ins: Instruction) -> int | None:
    sent, receiver = frame.pop(), frame.peek(ITERATOR_SLOTS)
    try:
        if isinstance(receiver, GeneratorValue):
            item = receiver.resume(frame, sent, None)
        else:
            item = (
                frame.next(receiver)
                if sent is NONE or sent.is_constant() and sent.constant() is None
                else receiver.call_method(frame, "send", [sent], {})
            )
    except Exhausted as e:
        result: Value = (
            receiver.result if isinstance(receiver, GeneratorValue) else NONE if e.value is None else e.value
        )
    except Raised as e:
        if not issubclass(e.value.cls, StopIteration):
            raise
        result = e.value.args[0] if e.value.args else NONE
    else:
        frame.push(item)
        return None
    if sys.version_info < (3, 12):  # later versions keep the receiver for END_SEND
        frame.pop()
    frame.push(result)
    return _target(ins)


@opcode("END_SEND", since=(3, 12))
def end_send(frame: Frame, ins: Instruction) -> None:
    value = frame.pop()
    frame.pop_n(ITERATOR_SLOTS)
    frame.push(value)


@opcode("CLEANUP_THROW", since=(3, 12))
def cleanup_throw(frame: Frame, ins: Instruction) -> None:
    exc = frame.pop()
    frame.pop_n(1 + ITERATOR_SLOTS)  # what was sent last, and the receiver
    if isinstance(exc, ExceptionValue) and issubclass(exc.cls, StopIteration):
        frame.push(NONE)
        if HAS_NULL:
            frame.push_null()
        frame.push(exc.args[0] if exc.args else NONE)
        return
    assert isinstance(exc, ExceptionValue)
    raise Raised(exc)


@opcode("ASYNC_GEN_WRAP", until=(3, 11))
def async_gen_wrap(frame: Frame, ins: Instruction) -> None:
    raise Unsupported("an async generator", "FJ117")


breaks(
    "async code is not captured", "GET_AITER", "GET_ANEXT", "GET_AWAITABLE", "BEFORE_ASYNC_WITH", "LOAD_SPECIAL",
    "END_ASYNC_FOR",
)
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
breaks(
    "never executed by compiled code", "INTERPRETER_EXIT", "RESERVED", "ENTER_EXECUTOR", "EXIT_INIT_CHECK",
    "TRACE_RECORD",
)
breaks("an except* block, or type parameters of a function made here", "CALL_INTRINSIC_2")
