"""Resume functions: the rest of a function, entered at any instruction.

A *resume function* takes the stack, locals and cells of a frame as arguments and goes on at an instruction. It is
captured in its turn, through a Dispatcher. Also variables that nothing reads again are arguments: plain Python lets go
of what they hold when they are overwritten or the frame ends, which weak references and finalizers see. They are
arguments wherever they may hold something, so that there is one function for a place; where they hold nothing, or
nothing whose end could be seen, NOT_HELD is passed.

Cells are passed as arguments.  CPython's LOAD_DEREF reads whatever cell sits in its slot, so a cell argument that is
declared a cell variable and not made again by MAKE_CELL serves as the variable's cell.
"""
from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any, NamedTuple

from framejit import _native as native
from framejit.bytecode.assemble import assemble_variant
from framejit.bytecode.decode import Decoded, Instruction, decode
from framejit.bytecode.emitter import Emitter
from framejit.bytecode.instr import CellVar, FreeVar, Instr, Label, Location
from framejit.bytecode.resume_code import Layout, ResumeCode, StackSlot
from framejit.capture.breaks.signal_places import may_look_before, next_look


class _NotHeld:
    def __repr__(self) -> str:
        return "<not held>"


NOT_HELD = _NotHeld()
"""In a variable that nothing reads again."""


class _Raising(NamedTuple):
    inner: FunctionType | None
    """What raises where the frame waits for the end of a call; without one that is for the frame itself to do."""


def raising_copy(fn: FunctionType) -> FunctionType:
    """A copy of a resume function that, where it goes on, raises what waits."""
    resume: ResumeCode = fn._framejit_resume  # type: ignore[attr-defined]
    inner = None
    if resume.inner is not None and may_look_before(decode(resume.original), resume.index):
        inner = raising_copy(resume.inner)  # type: ignore[arg-type]  # mypy binds the function to the tuple
    n_inner = None if resume.inner is None else resume.inner.__code__.co_argcount
    code, _, _ = resume_code(resume.original, resume.index, resume.layout, n_inner, _Raising(inner))
    given: Any = fn  # what mypy keeps of the type of functions between two runs has no __builtins__
    made = native.function_with_builtins(code, given.__globals__, given.__builtins__)
    made.__qualname__ = fn.__qualname__
    return made


def listing(decoded: Decoded, labels: dict[int, Label]) -> tuple[list[Any], list[int]]:
    """The body of a code object, cells turned into arguments, with `labels` at the instructions they are for; original
    indices.

    `super()` finds its class and object by their place in the frame, which is another here, so it gets them as
    arguments.
    """
    indices: list[int] = []
    bare_super = False
    at = {id(ins.original): ins.index for ins in decoded.instructions}
    body: list[Any] = []
    for item in decoded.listing:
        if not isinstance(item, Instr):
            body.append(item)
            continue
        index = at[id(item)]
        if index in labels:
            body.append(labels[index])
        indices.append(index)
        if decoded.instructions[index].name == "LOAD_GLOBAL" and decoded.instructions[index].arg[1] == "super":
            following = [i.name for i in decoded.instructions[index + 1 : index + 3]]
            calls = decoded.instructions[index + 1 : index + 3]
            bare_super = (
                following[:1] in (["CALL"], ["PRECALL"]) and calls[0].arg == 0 and decoded.first_argument is not None
            )
        elif bare_super and item.name in ("PRECALL", "CALL"):
            if decoded.instructions[index - 1].name != "PRECALL":
                assert decoded.first_argument is not None
                first = decoded.first_argument
                is_cell = any(
                    i.name in ("LOAD_DEREF", "MAKE_CELL", "LOAD_CLOSURE") and i.arg == first
                    for i in decoded.instructions
                )
                body.append(Instr("LOAD_DEREF", CellVar("__class__"), location=item.location))
                body.append(
                    Instr("LOAD_DEREF", CellVar(first), location=item.location)
                    if is_cell
                    else Instr("LOAD_FAST", first, location=item.location)
                )
                indices[-1:] = [index, index, index]
            body.append(Instr(item.name, 2, location=item.location))
            bare_super = item.name == "PRECALL"
            continue
        if index <= decoded.start and item.name in ("MAKE_CELL", "COPY_FREE_VARS", "RESUME", "RETURN_GENERATOR"):
            body.append(Instr("NOP", location=item.location))
        elif item.name == "LOAD_SUPER_ATTR":
            method, _, name = decoded.instructions[index].arg
            body.append(Instr("LOAD_SUPER_ATTR", (method, True, name), location=item.location))
        elif isinstance(item.arg, (CellVar, FreeVar)):
            body.append(Instr(item.name, CellVar(item.arg.name), location=item.location))
        else:
            body.append(item)
    return body, indices


def location_of(ins: Instruction) -> Location | None:
    return ins.original.location if ins.original else None


def enter(em: Emitter, layout: Layout) -> None:
    """Rebuild the stack from the arguments.

    They do not stay in variables: what the program has on its stack alone must die when it is popped, and an exception
    must not be held by a frame it went through.
    """
    for i, kind in enumerate(layout.stack):
        if kind == StackSlot.NULL:
            em.op("PUSH_NULL")
        elif kind == StackSlot.OFFSET:
            em.op("LOAD_CONST", 0)  # offsets differ here; that of the first instruction, at the line resumed at, serves
        else:
            em.load_fast(f"__stack{i}")
            if kind == StackSlot.PREVIOUS:
                em.op("PUSH_EXC_INFO")
                em.pop()
            em.op("DELETE_FAST", f"__stack{i}")


def hand_over(em: Emitter, parameters: list[str]) -> None:
    """Push arguments that this frame has for the one below it only; like `enter`, it keeps none."""
    for name in parameters:
        em.load_fast(name)
        em.op("DELETE_FAST", name)


INNER_FUNCTION = "__inner_function"


def resume_code(
    code: CodeType, index: int, layout: Layout, inner_args: int | None, raising: _Raising | None = None
) -> tuple[CodeType, list[int], int]:
    """The code of a resume function, for each of its instructions the index in `code` (-1 in the prologue), and how
    many of these take the arguments over.

    `raising`: what waits is raised where the frame goes on, in the try and with blocks that it is in there.
    """
    decoded = decode(code)
    parameters = layout.parameters()
    at = index if inner_args is None else index + 1
    look = next_look(decoded, at)
    labels = {at: Label(), look: Label()}  # one of them, where both are the same place
    body, indices = listing(decoded, labels)
    em = Emitter(decoded.instructions[index].line or code.co_firstlineno)
    em.op("RESUME", 0)
    em.take_over_arguments()
    n_taking_over = len(em.instructions)
    enter(em, layout)
    if inner_args is not None:
        names = [f"__inner{i}" for i in range(inner_args)]
        parameters += [INNER_FUNCTION, *names]
        em.call(
            lambda: em.op("LOAD_CONST", raising.inner) if raising and raising.inner else em.load_fast(INNER_FUNCTION),
            lambda: hand_over(em, names),
            inner_args,
        )
    if raising is not None and raising.inner is None:
        with em.apart() as looking, em.at(location_of(decoded.instructions[look])):
            em.handle_signals()
        place = body.index(labels[look]) + 1
        body[place:place] = looking
    em.op("JUMP_FORWARD", labels[at])
    calls_inner = [
        i >= n_taking_over and isinstance(ins, Instr) and ins.name in ("CALL", "PRECALL")
        for i, ins in enumerate(em.instructions)
    ]
    prologue = [index if calls else -1 for calls in calls_inner]
    return (
        assemble_variant(em.instructions, code, parameters, cells=all_cells(code, layout), body=body),
        prologue + indices,
        n_taking_over,
    )


def all_cells(code: CodeType, layout: Layout) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*layout.cells, *decode(code).cells, *code.co_freevars)))
