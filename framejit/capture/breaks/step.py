"""Steps: what follows a graph break at once.

A *step* carries out the one instruction a graph breaks at, for real, in its own place: inside the same try and
with blocks, whose handlers follow in a copy of the code.  Then it leaves through a tail call to the resume function
behind it.  Where the break is inside an inlined call, the step of the caller calls the step of the callee.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from types import CellType, FunctionType
from typing import Any

from framejit import _native as native
from framejit.bytecode.assemble import assemble_variant
from framejit.bytecode.decode import Handler, decode
from framejit.bytecode.emitter import TAIL, Emitter
from framejit.bytecode.for_iterators import CLEARS_AWAY
from framejit.bytecode.instr import Label, TryBegin, TryEnd
from framejit.bytecode.liveness import RETURNS
from framejit.bytecode.resume_code import Layout, StackKinds, StackSlot
from framejit.capture.breaks.broken_frame import BrokenFrame, stack_in_handler
from framejit.capture.breaks.real_instruction import emit_for_real
from framejit.capture.breaks.resume import NOT_HELD, all_cells, enter, hand_over, listing, location_of
from framejit.capture.breaks.resume_points import ResumePoints
from framejit.capture.breaks.signal_places import may_look_before
from framejit.capture.breaks.stack_effects import Exit
from framejit.events.meter import meter
from framejit.late_dataclass import dataclass

_EMPTY_CELL = CellType()


def build_step(points: ResumePoints, frames: list[BrokenFrame]) -> native.Dispatcher:
    """The step for a chain of frames, outermost first: a Dispatcher to tail-call with the frames' states in order, then
    what they hold only.

    Frames whose call stands in a try or with block carry out the rest of the chain inside that block; the others,
    the innermost ones, are resumed together, so that what follows in them is one graph.
    """
    key = tuple(
        (
            id(f.code), id(f.globals), id(f.builtins), f.instruction.index, f.stack, f.bound, f.cells,
            f.keyword_names, f.held,
        )
        for f in frames
    )
    if key not in points.steps:
        points.steps[key] = (_build_step(points, frames), frames)
    return points.steps[key][0]


def _build_step(points: ResumePoints, frames: list[BrokenFrame]) -> native.Dispatcher:
    layouts = [f.layout_before() for f in frames]
    if frames[-1].instruction.name in RETURNS:
        together = len(frames) - 1
    elif any(not _can_be_resumed(frames[-1], handler) for handler, _ in frames[-1].handlers(is_innermost=True)):
        together = len(frames) - 1
    else:
        together = max((i + 1 for i, f in enumerate(frames[:-1]) if f.instruction.handler is not None), default=0)
    looks = all(may_look_before(decode(frame.code), frame.instruction.index) for frame in frames[:-1])
    step = _resumed_together(points, frames[together:], layouts[together:], looks)
    for depth in range(together - 1, -1, -1):
        prefixes = [f"__inner{i}_" for i in range(depth + 1, len(frames))]
        step = _calling_step(
            points, frames[depth], layouts[depth], step,
            *_step_parameters(frames[depth + 1 :], layouts[depth + 1 :], prefixes),
        )
    return step


def _step_parameters(
    frames: list[BrokenFrame], layouts: list[Layout], prefixes: list[str]
) -> tuple[list[str], list[str]]:
    """What a step takes for its frames: the names for what is read again, and for what is held only."""
    read = [prefix + name for layout, prefix in zip(layouts, prefixes) for name in layout.parameters()]
    return read, [prefix + name for frame, prefix in zip(frames, prefixes) for name in sorted(frame.held)]


def _step_entry(
    points: ResumePoints, frame: BrokenFrame, em: Emitter, body: list[Any], parameters: list[str], own: Layout
) -> native.Entry:
    """The finished code of a step, as an entry that always fits."""
    code = assemble_variant(em.instructions, frame.code, parameters, cells=all_cells(frame.code, own), body=body)
    fn = native.function_with_builtins(code, frame.globals, frame.builtins)
    fn.__qualname__ = frame.code.co_qualname
    entry = native.Entry(code, fn, native.GuardTree([]), tuple(em.slots), native.RUNS_USER_CODE)
    points.entries.append(entry)
    return entry


def _step_dispatcher(points: ResumePoints, entry: native.Entry) -> native.Dispatcher:
    """A step is not captured: its dispatcher has one entry, and the options for the functions that the hook meets in
    it."""
    step = native.Dispatcher(entry.function, _never, points.options)  # type: ignore[arg-type]  # mypy binds the function to the entry
    step.add_entry(entry)
    return step


def _never(owner: Any, fn: Any, args: Any) -> None:
    """A step whose entry is gone runs as the plain function it is."""
    return None


def _can_be_resumed(frame: BrokenFrame, handler: Handler) -> bool:
    """Whether a handler begins by taking the exception."""
    return decode(frame.code).instructions[handler.target].name == "PUSH_EXC_INFO"


@dataclass
class _TryRegions:
    """The try and with blocks that a step works in. A handler that begins a new except or with block is left for a
    resume function with the exception; one that only cleans up behind the block it is in runs in a copy of the code."""

    points: ResumePoints
    outers: list[Outer]
    frame: BrokenFrame
    em: Emitter
    looks: bool
    """Whether signals may be looked for: not before the frame is left, if its caller is in the midst of leaving a block
    by this call."""
    handlers: dict[int, tuple[Handler, Label, StackKinds]] = field(default_factory=dict)  # by where they begin

    def protect(self, index: int, stack: StackKinds, emit: Callable[[], None]) -> None:
        """`emit` in the block that instruction `index` is in; `stack` is there before it."""
        handler = self.frame.handler_at(index)
        if handler is None:
            emit()
            return
        _, label, _ = self.handlers.setdefault(handler.target, (handler, Label(), stack_in_handler(handler, stack)))
        region = TryBegin(label, push_lasti=handler.push_lasti, stack_depth=handler.depth)
        self.em.instructions.append(region)
        emit()
        self.em.instructions.append(TryEnd(region))

    def handle_signals(self, out: Exit) -> None:
        """What the broken instruction left waiting, as a signal that came meanwhile, is raised where plain Python would
        look for it next: in the block that the program goes on in, not on the way there, which is in none."""
        decoded = decode(self.frame.code)
        if not self.looks or not may_look_before(decoded, out.index):
            self.em.call(lambda: self.em.op("LOAD_CONST", native.keep_signals), list, 0)
            self.em.pop()
        elif self.frame.handler_at(out.index) is not None or not may_look_before(decoded, self.frame.instruction.index):
            self.protect(out.index, out.stack, self.em.handle_signals)

    def leave_for_handlers(self) -> list[Any]:
        """Behind all that was protected. Returns the copy of the code that is needed, if any."""
        copied: dict[int, Label] = {}
        for handler, label, stack in self.handlers.values():
            if not _can_be_resumed(self.frame, handler):
                copied[handler.target] = label
                continue
            self.em.place(label)
            self.em.op("PUSH_EXC_INFO")
            out = Exit(handler.target + 1, stack, False)
            _leave(self.points, self.outers, self.frame, self.em, out, in_traceback=True)
        return listing(decode(self.frame.code), copied)[0] if copied else []


def _let_go(em: Emitter, names: Iterable[str]) -> None:
    """The frame may live on, by running or in a traceback, and must not keep what the program lets go of."""
    for name in names:
        em.op("LOAD_CONST", None)
        em.store_fast(name)


@dataclass
class Outer:
    """A caller that is resumed together with the broken frame, what its resume function takes, and the prefix of the
    names that state has in the step."""

    frame: BrokenFrame
    layout: Layout
    prefix: str
    given: frozenset[str]  # those of its variables and cells that the step has


def _leave(
    points: ResumePoints, outers: list[Outer], frame: BrokenFrame, em: Emitter, out: Exit, in_traceback: bool = False
) -> None:
    """Tail-call the resume function at `out`, with the stack as it is now.

    A frame that a traceback shows is left with a list, which holds what the frame that goes on holds: until the
    traceback ends, as in plain Python.
    """
    after = frame.layout_at(out.index, out.stack)
    names: dict[int, str] = {}
    for i in range(len(out.stack) - 1, -1, -1):
        kind = out.stack[i]
        if kind == StackSlot.PREVIOUS:
            if frame.stack[i : i + 1] == (StackSlot.PREVIOUS,):
                names[i] = em.new_temporary("s")
                em.call_object(sys.exception, list, 0)
                em.store_fast(names[i])
            else:
                names[i] = names[i + 1]
            em.op("POP_EXCEPT")  # the handler goes on elsewhere, where PUSH_EXC_INFO makes the exception current again
        elif kind == StackSlot.NULL:
            em.store_fast("__framejit_null")  # POP_TOP can't take a NULL
        elif kind == StackSlot.OFFSET:
            em.pop()
        else:
            names[i] = em.new_temporary("s")
            em.store_fast(names[i])
    fn = points.function(frame, out.index, after)
    inner_functions: list[FunctionType] = []
    n_args = len(after.parameters())
    for outer in reversed(outers):
        inner_functions.insert(0, fn)
        fn = points.function(outer.frame, outer.frame.instruction.index, outer.layout, fn)
        n_args += 1 + len(outer.layout.parameters())
    own = _given(frame) - (frame.bound - frame.bound_after()) | (frame.bound_after() - frame.bound)

    def load() -> None:
        for outer, inner in zip(outers, inner_functions):
            for name in outer.layout.parameters():
                if name in outer.given:
                    em.load_fast(outer.prefix + name)
                else:
                    _load_not_held(em, name in outer.layout.cells)
            em.load_object(inner)
        for i in sorted(names):
            em.load_fast(names[i])
        for name in (*after.variables, *after.cells):
            if name not in own:
                _load_not_held(em, name in after.cells)
            elif name in after.cells:
                em.load_cell(name)
            else:
                em.load_fast(name)

    em.call_slot(points.dispatcher(fn), TAIL, load, n_args)
    of_outers = [outer.prefix + name for outer in outers for name in outer.layout.parameters() if name in outer.given]
    _let_go(
        em,
        dict.fromkeys(
            (*names.values(), *frame.layout_before().variables, *(frame.held - set(frame.cells)), *of_outers)
        ),
    )
    if in_traceback:
        call, kept = em.new_temporary("call"), em.new_temporary("kept")
        em.store_fast(call)
        em.build("LIST", 0)
        em.store_fast(kept)
        em.call_object(native.keep_for_traceback, lambda: (em.load_fast(call), em.load_fast(kept)), 2)
        em.pop()
        hand_over(em, [call])
    em.return_value()


def _given(frame: BrokenFrame) -> frozenset[str]:
    """The stack slots, variables and cells of a frame that its step has."""
    return frame.held.union(frame.layout_before().parameters())


def _load_not_held(em: Emitter, is_cell: bool) -> None:
    if is_cell:
        em.load_object(_EMPTY_CELL)
    else:
        em.op("LOAD_CONST", NOT_HELD)


def _resumed_together(
    points: ResumePoints, frames: list[BrokenFrame], layouts: list[Layout], looks: bool
) -> native.Dispatcher:
    """Carry out the broken instruction of the last of `frames`, then resume them all.

    The instruction runs below a frame of each caller, so that tracebacks show them; the tail call it ends with
    passes up through them.
    """
    outers = [Outer(f, f.layout_resumed(), f"__outer{i}_", _given(f)) for i, f in enumerate(frames[:-1])]
    read, held = _step_parameters(frames, layouts, [*(o.prefix for o in outers), ""])
    entry = _innermost_step(points, outers, frames[-1], layouts[-1], read + held, looks)
    for outer in reversed(outers):
        entry = _passing_on(points, outer.frame, entry, [f"__pass{i}" for i in range(len(read) + len(held))])
    return _step_dispatcher(points, entry)


def _passing_on(points: ResumePoints, frame: BrokenFrame, inner: native.Entry, parameters: list[str]) -> native.Entry:
    """A frame of a caller around the step `inner`, which takes the same arguments."""
    em = Emitter(frame.instruction.line)
    em.op("RESUME", 0)
    em.take_over_arguments()
    with em.at(location_of(frame.instruction)):
        em.call(lambda: em.load_object(inner.function), lambda: hand_over(em, parameters), len(parameters))
    em.return_value()
    return _step_entry(points, frame, em, [], parameters, Layout((), (), ()))


def _innermost_step(
    points: ResumePoints, outers: list[Outer], frame: BrokenFrame, own: Layout, parameters: list[str], looks: bool
) -> native.Entry:
    ins = frame.instruction
    em = Emitter(ins.line)
    em.op("RESUME", 0)
    em.take_over_arguments()
    enter(em, own)
    outs = frame.exits_of_instruction()
    jump = Label()

    def emit() -> None:
        with em.at(location_of(ins)):
            if looks and may_look_before(decode(frame.code), ins.index):
                em.handle_signals()  # those that came while the graph ran
            emit_for_real(em, frame, jump)

    regions = _TryRegions(points, outers, frame, em, looks)
    regions.protect(ins.index, own.stack, emit)
    for out in outs:
        if out.is_jump:
            em.place(jump)
            if ins.name == "FOR_ITER":
                for name in CLEARS_AWAY:
                    em.op(name)
        with em.at(location_of(ins)):
            regions.handle_signals(out)
        if meter.running:
            place = (frame.code.co_filename, ins.line or 0, ins.column, ins.end_column)
            em.call_object(partial(meter.ran_break, place), list, 0)
            em.pop()
        _leave(points, outers, frame, em, out)
    return _step_entry(points, frame, em, regions.leave_for_handlers(), parameters, own)


def _calling_step(
    points: ResumePoints, frame: BrokenFrame, own: Layout, inner: native.Dispatcher, read_inside: list[str],
    held_inside: list[str]
) -> native.Dispatcher:
    """Carry out the call of the step `inner`, inside the try and with blocks of this frame; the rest of the arguments
    are for that."""
    em = Emitter(frame.instruction.line)
    em.op("RESUME", 0)
    em.take_over_arguments()
    enter(em, own)

    def emit() -> None:
        with em.at(location_of(frame.instruction)):
            names = read_inside + held_inside
            em.call_object(
                native.make_tail_call, lambda: em.call_slot(inner, TAIL, lambda: hand_over(em, names), len(names))
            )

    after = Exit(frame.instruction.index + 1, (*own.stack, StackSlot.RESULT), False)
    regions = _TryRegions(points, [], frame, em, looks=True)
    regions.protect(frame.instruction.index, own.stack, emit)
    _leave(points, [], frame, em, after)
    parameters = own.parameters() + read_inside + sorted(frame.held) + held_inside
    return _step_dispatcher(points, _step_entry(points, frame, em, regions.leave_for_handlers(), parameters, own))
