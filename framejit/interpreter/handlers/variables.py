"""Loading, storing and deleting variables and constants."""
from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.opcodes import opcode
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.exception_values import NULL
from framejit.values.objects.functions.function_values import CellValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

# Before 3.13 a call keeps its NULL below the callable, from 3.13 on above it.
NULL_FIRST = sys.version_info < (3, 13)


@opcode("NOP", "RESUME", "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG")
@opcode("NOT_TAKEN", since=(3, 14))
def nothing(frame: Frame, ins: Instruction) -> None:
    """The closure's cells are there when the frame is set up; the rest has no effect here."""


@opcode("LOAD_FAST")
@opcode("LOAD_FAST_CHECK", since=(3, 12))
def load_fast(frame: Frame, ins: Instruction) -> None:
    found = frame.locals.get(ins.arg)
    if found is None:
        raise frame.raised(
            UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value"
        )
    frame.push(found)


@opcode("LOAD_FAST_AND_CLEAR", since=(3, 12))
def load_and_clear(frame: Frame, ins: Instruction) -> None:
    found = frame.cells.pop(ins.arg, None) if ins.arg in frame.cells else frame.locals.pop(ins.arg, None)
    if found is None:
        frame.push_null()
    else:
        frame.stack.append(found)


@opcode("STORE_FAST")
def store_fast(frame: Frame, ins: Instruction) -> None:
    value = frame.pop_unseen()
    # of a comprehension, which uses the place as its own and puts back what was there
    if ins.arg in frame.decoded.cells:
        value = value if value is NULL else realize(frame, value)
        frame.cells.pop(ins.arg, None)
        if isinstance(value, CellValue):
            frame.cells[ins.arg] = value
            frame.locals.pop(ins.arg, None)
            return
    if value is NULL:
        frame.locals.pop(ins.arg, None)
    else:
        check_end(frame, frame.locals.get(ins.arg))
        frame.locals[ins.arg] = value


@opcode("DELETE_FAST")
def delete_fast(frame: Frame, ins: Instruction) -> None:
    check_end(frame, frame.locals.get(ins.arg))
    if frame.locals.pop(ins.arg, None) is None:
        raise frame.raised(
            UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value"
        )


@opcode("LOAD_CONST")
def load_const(frame: Frame, ins: Instruction) -> None:
    frame.push(from_python(ins.arg))


# ---- cells --------------------------------------------------------------------------------------


def _cell(frame: Frame, name: str) -> CellValue:
    return frame.cells[name]


@opcode("MAKE_CELL")
def make_cell(frame: Frame, ins: Instruction) -> None:
    # A function's own cells are there when the frame is set up; a comprehension makes others in their place, even in
    # that of a free variable.
    if ins.index > frame.decoded.start:
        frame.cells[ins.arg] = CellValue(frame.cells.get(ins.arg) or frame.locals.pop(ins.arg, None))


@opcode("LOAD_CLOSURE")
def load_closure(frame: Frame, ins: Instruction) -> None:
    if ins.arg in frame.cells:
        frame.stack.append(_cell(frame, ins.arg))
    else:  # a comprehension's plain variable has the place of the cell
        load_fast(frame, ins)


@opcode("LOAD_DEREF", "LOAD_CLASSDEREF", until=(3, 11))
@opcode("LOAD_DEREF", since=(3, 12))
def load_deref(frame: Frame, ins: Instruction) -> None:
    contents = _cell(frame, ins.arg).contents
    if contents is None:
        if ins.arg in frame.code.co_freevars:
            raise frame.raised(
                NameError,
                f"cannot access free variable {ins.arg!r} where it is not associated with a value in enclosing scope",
            )
        raise frame.raised(
            UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value"
        )
    frame.push(contents)


@opcode("STORE_DEREF")
def store_deref(frame: Frame, ins: Instruction) -> None:
    _cell(frame, ins.arg).set(frame, frame.pop_unseen())


@opcode("DELETE_DEREF")
def delete_deref(frame: Frame, ins: Instruction) -> None:
    _cell(frame, ins.arg).set(frame, None)


# ---- globals ------------------------------------------------------------------------------------


@opcode("LOAD_GLOBAL")
def load_global(frame: Frame, ins: Instruction) -> None:
    with_null, name = ins.arg
    value = frame.load_global(name)
    if with_null and NULL_FIRST:
        frame.push_null()
    frame.push(value)
    if with_null and not NULL_FIRST:
        frame.push_null()


@opcode("STORE_GLOBAL")
def store_global(frame: Frame, ins: Instruction) -> None:
    _set_global(frame, ins.arg, frame.pop_unseen())


@opcode("DELETE_GLOBAL")
def delete_global(frame: Frame, ins: Instruction) -> None:
    if not frame.has_global(ins.arg):
        raise frame.raised(NameError, f"name {ins.arg!r} is not defined")
    _set_global(frame, ins.arg, None)


def _set_global(frame: Frame, name: str, value: Value | None) -> None:
    namespace = frame.capture.known(frame.globals)
    if not isinstance(namespace, DictValue):
        frame.capture.effects.set_global(frame.globals, name, value)
    elif value is None:
        namespace.call_method(frame, "__delitem__", [from_python(name)], {})
    else:
        namespace.call_method(frame, "__setitem__", [from_python(name), value], {})


@opcode("LOAD_ASSERTION_ERROR", until=(3, 13))
def load_assertion_error(frame: Frame, ins: Instruction) -> None:
    frame.push(from_python(AssertionError))


@opcode("LOAD_BUILD_CLASS")
def load_build_class(frame: Frame, ins: Instruction) -> None:
    frame.push(from_python(builtins.__build_class__))
