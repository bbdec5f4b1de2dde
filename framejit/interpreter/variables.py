"""Loading, storing and deleting variables and constants."""
from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

from framejit.interpreter.dropped_generators import check_end
from framejit.interpreter.opcodes import opcode
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.exceptions import NULL
from framejit.values.objects.functions import CellValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.bytecode.decode import Instruction
    from framejit.interpreter.frame import Frame

# Before 3.13 a call keeps its NULL below the callable, from 3.13 on above it.
NULL_FIRST = sys.version_info < (3, 13)


@opcode("NOP", "RESUME", "CACHE", "COPY_FREE_VARS", "EXTENDED_ARG")
@opcode("NOT_TAKEN", since=(3, 14))
def nothing(tx: Frame, ins: Instruction) -> None:
    """The closure's cells are there when the frame is set up; the rest has no effect here."""


@opcode("LOAD_FAST")
@opcode("LOAD_FAST_CHECK", since=(3, 12))
def load_fast(tx: Frame, ins: Instruction) -> None:
    found = tx.locals.get(ins.arg)
    if found is None:
        raise tx.raised(UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value")
    tx.push(found)


@opcode("LOAD_FAST_AND_CLEAR", since=(3, 12))
def load_and_clear(tx: Frame, ins: Instruction) -> None:
    found = tx.cells.pop(ins.arg, None) if ins.arg in tx.cells else tx.locals.pop(ins.arg, None)
    if found is None:
        tx.push_null()
    else:
        tx.stack.append(found)


@opcode("STORE_FAST")
def store_fast(tx: Frame, ins: Instruction) -> None:
    value = tx.pop_unseen()
    if ins.arg in tx.decoded.cells:  # of a comprehension, which uses the place as its own and puts back what was there
        value = value if value is NULL else realize(tx, value)
        tx.cells.pop(ins.arg, None)
        if isinstance(value, CellValue):
            tx.cells[ins.arg] = value
            tx.locals.pop(ins.arg, None)
            return
    if value is NULL:
        tx.locals.pop(ins.arg, None)
    else:
        check_end(tx, tx.locals.get(ins.arg))
        tx.locals[ins.arg] = value


@opcode("DELETE_FAST")
def delete_fast(tx: Frame, ins: Instruction) -> None:
    check_end(tx, tx.locals.get(ins.arg))
    if tx.locals.pop(ins.arg, None) is None:
        raise tx.raised(UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value")


@opcode("LOAD_CONST")
def load_const(tx: Frame, ins: Instruction) -> None:
    tx.push(from_python(ins.arg))


# ---- cells --------------------------------------------------------------------------------------


def _cell(tx: Frame, name: str) -> CellValue:
    return tx.cells[name]


@opcode("MAKE_CELL")
def make_cell(tx: Frame, ins: Instruction) -> None:
    # A function's own cells are there when the frame is set up; a comprehension makes others in their place, even in that of a free variable.
    if ins.index > tx.decoded.start:
        tx.cells[ins.arg] = CellValue(tx.cells.get(ins.arg) or tx.locals.pop(ins.arg, None))


@opcode("LOAD_CLOSURE")
def load_closure(tx: Frame, ins: Instruction) -> None:
    if ins.arg in tx.cells:
        tx.stack.append(_cell(tx, ins.arg))
    else:  # a comprehension's plain variable has the place of the cell
        load_fast(tx, ins)


@opcode("LOAD_DEREF", "LOAD_CLASSDEREF", until=(3, 11))
@opcode("LOAD_DEREF", since=(3, 12))
def load_deref(tx: Frame, ins: Instruction) -> None:
    contents = _cell(tx, ins.arg).contents
    if contents is None:
        if ins.arg in tx.code.co_freevars:
            raise tx.raised(NameError, f"cannot access free variable {ins.arg!r} where it is not associated with a value in enclosing scope")
        raise tx.raised(UnboundLocalError, f"cannot access local variable {ins.arg!r} where it is not associated with a value")
    tx.push(contents)


@opcode("STORE_DEREF")
def store_deref(tx: Frame, ins: Instruction) -> None:
    _cell(tx, ins.arg).set(tx, tx.pop_unseen())


@opcode("DELETE_DEREF")
def delete_deref(tx: Frame, ins: Instruction) -> None:
    _cell(tx, ins.arg).set(tx, None)


# ---- globals ------------------------------------------------------------------------------------


@opcode("LOAD_GLOBAL")
def load_global(tx: Frame, ins: Instruction) -> None:
    with_null, name = ins.arg
    value = tx.load_global(name)
    if with_null and NULL_FIRST:
        tx.push_null()
    tx.push(value)
    if with_null and not NULL_FIRST:
        tx.push_null()


@opcode("STORE_GLOBAL")
def store_global(tx: Frame, ins: Instruction) -> None:
    _set_global(tx, ins.arg, tx.pop_unseen())


@opcode("DELETE_GLOBAL")
def delete_global(tx: Frame, ins: Instruction) -> None:
    if not tx.has_global(ins.arg):
        raise tx.raised(NameError, f"name {ins.arg!r} is not defined")
    _set_global(tx, ins.arg, None)


def _set_global(tx: Frame, name: str, value: Value | None) -> None:
    namespace = tx.capture.known(tx.globals)
    if not isinstance(namespace, DictValue):
        tx.capture.effects.set_global(tx.globals, name, value)
    elif value is None:
        namespace.call_method(tx, "__delitem__", [from_python(name)], {})
    else:
        namespace.call_method(tx, "__setitem__", [from_python(name), value], {})


@opcode("LOAD_ASSERTION_ERROR", until=(3, 13))
def load_assertion_error(tx: Frame, ins: Instruction) -> None:
    tx.push(from_python(AssertionError))


@opcode("LOAD_BUILD_CLASS")
def load_build_class(tx: Frame, ins: Instruction) -> None:
    tx.push(from_python(builtins.__build_class__))
