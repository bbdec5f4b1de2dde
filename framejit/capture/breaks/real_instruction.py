"""The instruction that a graph breaks at, in the code of a step: it does there what it does in the program's own."""

from __future__ import annotations

import operator
import sys
from functools import partial
from types import CellType
from typing import Any

from framejit.bytecode.decode import decode
from framejit.bytecode.emitter import Emitter
from framejit.bytecode.for_iterators import HAS_NULL
from framejit.bytecode.instr import CellVar, FreeVar, Instr, Label
from framejit.bytecode.spellings import ENTER_WITH
from framejit.capture.breaks.broken_frame import BrokenFrame
from framejit.capture.breaks.resume import hand_over
from framejit.capture.breaks.stack_effects import branch_after
from framejit.guards.sources import static_lookup


def emit_for_real(em: Emitter, frame: BrokenFrame, jump: Label) -> None:
    """The broken instruction itself, in a form whose stack is known before it runs."""
    ins, null_first = frame.instruction, sys.version_info < (3, 13)
    assert ins.original is not None
    arg: Any = ins.original.arg
    if isinstance(arg, (CellVar, FreeVar)):
        arg = CellVar(arg.name)
    if ins.target is not None:
        em.op(ins.name.replace("BACKWARD", "FORWARD"), jump)
        return
    branch = branch_after(ins, decode(frame.code).instructions)
    if branch is not None:
        em.op(ins.name)
        em.op(branch.name, jump)
        return
    if (
        ins.name == "LOAD_METHOD"
        or ins.name in ("LOAD_ATTR", "LOAD_GLOBAL", "LOAD_SUPER_ATTR")
        and isinstance(arg, tuple)
    ):
        # The method form leaves [method, self] or [NULL, callable] by what it finds; use the plain form.
        name = arg if isinstance(arg, str) else arg[-1]
        if ins.name == "LOAD_GLOBAL":
            em.load_global(name)
        elif ins.name == "LOAD_SUPER_ATTR":
            em.op(ins.name, (False, True, name))  # told class and object, which it can't find in this frame
        else:
            em.load_attr(name)
        if isinstance(arg, str) or arg[0]:
            em.op("PUSH_NULL")
            if null_first:
                em.swap()
        return
    if ins.name == ENTER_WITH:
        _enter_for_real(em)
        return
    # the real one may leave an index in place of the NULL, which can't be passed on
    if ins.name == "GET_ITER" and HAS_NULL:
        iterable = em.new_temporary("iterable")
        em.store_fast(iterable)
        em.call_object(iter, lambda: hand_over(em, [iterable]))
        em.op("PUSH_NULL")
        return
    if ins.name == "CALL":
        if frame.keyword_names:
            em.op("KW_NAMES", frame.keyword_names)
        if sys.version_info < (3, 12):
            em.op("PRECALL", arg)
    if ins.name == "LOAD_DEREF" and isinstance(arg, CellVar) and arg.name in frame.code.co_freevars:
        _complain_of_empty_cell(em, arg.name)
    em.instructions.append(ins.original if arg is ins.original.arg else Instr(ins.name, arg, location=em.location))


def _enter_for_real(em: Emitter) -> None:
    """Enter a with block. The real instructions look both methods up, and complain where one is missing; of the one for
    the exit there is then made a single object."""
    manager = em.new_temporary("manager")
    em.store_fast(manager)
    em.load_fast(manager)
    em.op("LOAD_SPECIAL", "__exit__")
    em.store_fast("__framejit_null")  # the manager, or a NULL, which POP_TOP can't take
    em.pop()
    em.call_object(bound_exit, lambda: em.load_fast(manager))
    em.op("PUSH_NULL")
    hand_over(em, [manager])
    em.op("LOAD_SPECIAL", "__enter__")
    em.op("CALL", 0)


def bound_exit(manager: Any) -> Any:
    """The method that a with statement calls at its end."""
    cls = type(manager)
    found = static_lookup(cls, "__exit__")
    return found.__get__(manager, cls) if hasattr(type(found), "__get__") else found


def _complain_of_empty_cell(em: Emitter, name: str) -> None:
    """Raise what LOAD_DEREF raises for a free variable; here it is a cell variable, for which that says something
    else."""
    bound = Label()
    error = partial(
        NameError,
        f"cannot access free variable {name!r} where it is not associated with a value in enclosing scope",
        name=name,
    )
    em.call_object(operator.eq, lambda: (em.load_cell(name), em.load_object(CellType())), 2)
    em.op("POP_JUMP_FORWARD_IF_FALSE" if sys.version_info < (3, 12) else "POP_JUMP_IF_FALSE", bound)
    em.call_object(error, list, 0)
    em.op("RAISE_VARARGS", 1)
    em.place(bound)
