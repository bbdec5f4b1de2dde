"""Resume functions: the rest of a function, entered at any instruction, and the steps that lead there.

A *resume function* takes the live stack, locals and cells of a frame as arguments and goes on at an instruction.
It is captured in its turn, through a Dispatcher.

A *step* carries out the one instruction a graph breaks at, for real, in its own place: inside the same try and
with blocks, whose handlers follow in a copy of the code.  Then it leaves through a tail call to the resume function
behind it.  Where the break is inside an inlined call, the step of the caller calls the step of the callee.

Cells are passed as arguments.  CPython's LOAD_DEREF reads whatever cell sits in its slot, so a cell argument that is
declared a cell variable and not made again by MAKE_CELL serves as the variable's cell.
"""
from __future__ import annotations

import sys
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Callable

from bytecode import CellVar, FreeVar, Instr, Label
from bytecode.instr import TryBegin, TryEnd

from framejit import _native as native
from framejit.bytecode.decode import Decoded, Instruction, decode
from framejit.bytecode.emitter import CALL, TAIL, Emitter, assemble
from framejit.capture.stack_effects import Exit, exits

VALUE_SLOT, NULL_SLOT, EXCEPTION_SLOT, PREVIOUS_SLOT = "v", "n", "e", "p"


@dataclass(frozen=True)
class Layout:
    """What a frame passes on: the kind of each stack slot, and the names of its live variables and cells."""

    stack: tuple[str, ...]
    variables: tuple[str, ...]
    cells: tuple[str, ...]

    def parameters(self) -> list[str]:
        return [f"__stack{i}" for i, kind in enumerate(self.stack) if kind in (VALUE_SLOT, EXCEPTION_SLOT)] + list(self.variables) + list(self.cells)


@dataclass
class ResumePoints:
    """The resume functions that belong to one optimized function; they live and die with it."""

    on_miss: Callable[..., Any]
    options: Any
    dispatchers: dict[Any, native.Dispatcher] = field(default_factory=dict)

    def dispatcher(self, code: CodeType, globals: dict[str, Any], index: int, layout: Layout) -> native.Dispatcher:
        """The Dispatcher that goes on at instruction `index` of `code`."""
        key = (id(code), id(globals), index, layout)
        found = self.dispatchers.get(key)
        if found is None:
            made, indices = _resume_code(code, index, layout)
            fn = FunctionType(made, globals, code.co_name)
            fn.__qualname__ = code.co_qualname
            found = native.Dispatcher(fn, self.on_miss, self.options)
            found.resume_points, found.layout, found.original_code, found.original_indices = self, layout, code, indices  # type: ignore[attr-defined]
            self.dispatchers[key] = found
        return found


def _listing(decoded: Decoded, entry: int) -> tuple[list[Any], Label, list[int]]:
    """The body of a code object, cells turned into arguments; a label at instruction `entry`; original indices.

    `super()` finds its class and object by their place in the frame, which is another here, so it gets them as arguments.
    """
    label = Label()
    indices: list[int] = []
    bare_super = False
    at = {id(ins.original): ins.index for ins in decoded.instructions}
    body: list[Any] = []
    for item in decoded.bytecode:
        if not isinstance(item, Instr):
            if isinstance(item, (Label, TryBegin, TryEnd)):
                body.append(item)
            continue
        index = at[id(item)]
        if index == entry:
            body.append(label)
        indices.append(index)
        if item.name == "LOAD_GLOBAL" and item.arg[1] == "super":
            following = [i.name for i in decoded.instructions[index + 1 : index + 3]]
            calls = decoded.instructions[index + 1 : index + 3]
            bare_super = following[:1] in (["CALL"], ["PRECALL"]) and calls[0].arg == 0 and decoded.first_argument is not None
        elif bare_super and item.name in ("PRECALL", "CALL"):
            if decoded.instructions[index - 1].name != "PRECALL":
                assert decoded.first_argument is not None
                first = decoded.first_argument
                is_cell = any(i.name in ("LOAD_DEREF", "MAKE_CELL", "LOAD_CLOSURE") and i.arg == first for i in decoded.instructions)
                body.append(Instr("LOAD_DEREF", CellVar("__class__"), location=item.location))
                body.append(Instr("LOAD_DEREF", CellVar(first), location=item.location) if is_cell else Instr("LOAD_FAST", first, location=item.location))
                indices[-1:] = [index, index, index]
            body.append(Instr(item.name, 2, location=item.location))
            bare_super = item.name == "PRECALL"
            continue
        if item.name in ("MAKE_CELL", "COPY_FREE_VARS", "RESUME", "RETURN_GENERATOR"):
            body.append(Instr("NOP", location=item.location))
        elif isinstance(item.arg, (CellVar, FreeVar)):
            body.append(Instr(item.name, CellVar(item.arg.name), location=item.location))
        else:
            body.append(item)
    return body, label, indices


def _enter(em: Emitter, layout: Layout) -> None:
    """Rebuild the stack from the arguments."""
    for i, kind in enumerate(layout.stack):
        if kind == NULL_SLOT:
            em.op("PUSH_NULL")
        elif kind == PREVIOUS_SLOT:
            continue  # PUSH_EXC_INFO of the exception above makes it
        else:
            em.load_fast(f"__stack{i}")
            if kind == EXCEPTION_SLOT:
                em.op("PUSH_EXC_INFO")


def _resume_code(code: CodeType, index: int, layout: Layout) -> tuple[CodeType, list[int]]:
    """The code of a resume function, and for each of its instructions the index in `code` (-1 in the prologue)."""
    decoded = decode(code)
    body, label, indices = _listing(decoded, index)
    em = Emitter(decoded.instructions[index].line or code.co_firstlineno)
    em.op("RESUME", 0)
    _enter(em, layout)
    em.op("JUMP_FORWARD", label)
    prologue = [-1] * sum(isinstance(i, Instr) for i in em.instructions)
    return assemble(em.instructions + body, code, layout.parameters(), cells=_all_cells(code, layout)), prologue + indices


def _all_cells(code: CodeType, layout: Layout) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*layout.cells, *code.co_cellvars, *code.co_freevars)))


# ---- steps ----------------------------------------------------------------------------------------


@dataclass
class BrokenFrame:
    """A frame at a graph break: where it stands and what it holds."""

    code: CodeType
    globals: dict[str, Any]
    instruction: Instruction
    stack: tuple[str, ...]  # kinds of slots before the instruction (for callers: without the call's operands)
    bound: frozenset[str]  # variables that have a value
    cells: tuple[str, ...]
    keyword_names: tuple[str, ...] = ()

    def layout_before(self) -> Layout:
        decoded = decode(self.code)
        live = set(decoded.live_at(self.instruction.index))
        if self.instruction.handler is not None:
            live |= decoded.live_at(self.instruction.handler.target)
        for out in self.exits_of_instruction():
            live |= decoded.live_at(out.index)
        return self._layout(self.stack, live)

    def exits_of_instruction(self) -> list[Exit]:
        return exits(self.instruction, self.stack)

    def layout_at(self, index: int, stack: tuple[str, ...]) -> Layout:
        return self._layout(stack, set(decode(self.code).live_at(index)))

    def _layout(self, stack: tuple[str, ...], live: set[str]) -> Layout:
        cells = tuple(c for c in self.cells if c in live or c == "__class__")
        variables = tuple(sorted((live & self.bound) - set(self.cells)))
        return Layout(stack, variables, cells)


def build_step(points: ResumePoints, frames: list[BrokenFrame]) -> tuple[native.Dispatcher, list[Layout]]:
    """The step for a chain of frames, outermost first: a Dispatcher to tail-call with the frames' states in order."""
    layouts = [f.layout_before() for f in frames]
    inner: native.Dispatcher | None = None
    for depth in range(len(frames) - 1, -1, -1):
        frame, own = frames[depth], layouts[depth]
        passed_on = [f"__inner{depth + 1 + k}_{p}" for k, lay in enumerate(layouts[depth + 1 :]) for p in lay.parameters()]
        if depth == len(frames) - 1:
            inner = _innermost_step(points, frame, own)
        else:
            assert inner is not None
            inner = _calling_step(points, frame, own, inner, passed_on)
    assert inner is not None
    return inner, layouts


def _finish_step(frame: BrokenFrame, em: Emitter, prologue: list[Any], body: list[Any], parameters: list[str], own: Layout) -> native.Dispatcher:
    code = assemble(prologue + body, frame.code, parameters, cells=_all_cells(frame.code, own))
    fn = FunctionType(code, frame.globals, frame.code.co_name)
    fn.__qualname__ = frame.code.co_qualname
    step = native.Dispatcher(fn, _never)
    # A step is not captured: it has one entry that always fits.
    step.add_entry(native.Entry(code, fn, native.GuardTree([]), tuple(em.slots), native.RUNS_USER_CODE))
    return step


def _never(owner: Any, fn: Any, args: Any) -> None:
    """A step whose entry is gone runs as the plain function it is."""
    return None


def _protected(frame: BrokenFrame, emit: Callable[[], None], em: Emitter) -> list[Any]:
    """Emit inside the try region of the broken instruction; the code its handler lives in."""
    handler = frame.instruction.handler
    if handler is None:
        emit()
        return []
    body, label, _ = _listing(decode(frame.code), handler.target)
    region = TryBegin(label, push_lasti=handler.push_lasti, stack_depth=handler.depth)
    em.instructions.append(region)
    emit()
    em.instructions.append(TryEnd(region))
    return body


def _leave(points: ResumePoints, frame: BrokenFrame, em: Emitter, out: Exit) -> None:
    """Tail-call the resume function at `out`, with the stack as it is now."""
    after = frame.layout_at(out.index, out.stack)
    names: dict[int, str] = {}
    for i in range(len(out.stack) - 1, -1, -1):
        kind = out.stack[i]
        if kind == PREVIOUS_SLOT:
            em.op("POP_EXCEPT")
        elif kind == NULL_SLOT:
            em.store_fast("__framejit_null")  # POP_TOP can't take a NULL
        else:
            names[i] = em.new_temporary("s")
            em.store_fast(names[i])
    target = points.dispatcher(frame.code, frame.globals, out.index, after)

    def load() -> None:
        for i in sorted(names):
            em.load_fast(names[i])
        for name in after.variables:
            em.load_fast(name)
        for name in after.cells:
            em.load_cell(name)

    em.call_slot(target, TAIL, load, len(after.parameters()))
    em.return_value()


def _innermost_step(points: ResumePoints, frame: BrokenFrame, own: Layout) -> native.Dispatcher:
    ins = frame.instruction
    em = Emitter(ins.line)
    em.op("RESUME", 0)
    _enter(em, own)
    outs = frame.exits_of_instruction()
    jump = Label()

    def emit() -> None:
        with em.at(ins.original.location if ins.original else None):
            _emit_for_real(em, frame, jump)

    body = _protected(frame, emit, em)
    for out in outs:
        if out.is_jump:
            em.place(jump)
            if ins.name == "FOR_ITER" and sys.version_info >= (3, 12):
                em.op("END_FOR")
        _leave(points, frame, em, out)
    return _finish_step(frame, em, em.instructions, body, own.parameters(), own)


def _emit_for_real(em: Emitter, frame: BrokenFrame, jump: Label) -> None:
    """The broken instruction itself, in a form whose stack is known before it runs."""
    ins, null_first = frame.instruction, sys.version_info < (3, 13)
    assert ins.original is not None
    arg = ins.original.arg
    if isinstance(arg, (CellVar, FreeVar)):
        arg = CellVar(arg.name)
    if ins.target is not None:
        em.op(ins.name.replace("BACKWARD", "FORWARD"), jump)
        return
    if ins.name == "LOAD_METHOD" or ins.name in ("LOAD_ATTR", "LOAD_GLOBAL") and isinstance(arg, tuple) and arg[0]:
        # The method form leaves [method, self] or [NULL, callable] by what it finds; use the plain form.
        name = arg if isinstance(arg, str) else arg[1]
        if ins.name == "LOAD_GLOBAL":
            em.load_global(name)
        else:
            em.load_attr(name)
        em.op("PUSH_NULL")
        if null_first:
            em.swap()
        return
    if ins.name == "CALL":
        if frame.keyword_names:
            em.op("KW_NAMES", frame.keyword_names)
        if sys.version_info < (3, 12):
            em.op("PRECALL", arg)
    em.instructions.append(Instr(ins.name, *(() if ins.original.arg is None or repr(ins.original.arg).startswith("<bytecode.instr._UNSET") else (arg,)), location=em.location))


def _calling_step(points: ResumePoints, frame: BrokenFrame, own: Layout, inner: native.Dispatcher, passed_on: list[str]) -> native.Dispatcher:
    em = Emitter(frame.instruction.line)
    em.op("RESUME", 0)
    _enter(em, own)

    def emit() -> None:
        with em.at(frame.instruction.original.location if frame.instruction.original else None):
            em.call_slot(inner, CALL, lambda: [em.load_fast(p) for p in passed_on], len(passed_on))

    body = _protected(frame, emit, em)
    after = frame.instruction.index + 1
    _leave(points, frame, em, Exit(after, (*own.stack, VALUE_SLOT), False))
    return _finish_step(frame, em, em.instructions, body, own.parameters() + passed_on, own)
