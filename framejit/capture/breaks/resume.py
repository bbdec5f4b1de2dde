"""Resume functions: the rest of a function, entered at any instruction, and the steps that lead there.

A *resume function* takes the stack, locals and cells of a frame as arguments and goes on at an instruction. It is
captured in its turn, through a Dispatcher. Also variables that nothing reads again are arguments: plain Python lets go
of what they hold when they are overwritten or the frame ends, which weak references and finalizers see. They are
arguments wherever they may hold something, so that there is one function for a place; where they hold nothing, or
nothing whose end could be seen, NOT_HELD is passed.

A *step* carries out the one instruction a graph breaks at, for real, in its own place: inside the same try and
with blocks, whose handlers follow in a copy of the code.  Then it leaves through a tail call to the resume function
behind it.  Where the break is inside an inlined call, the step of the caller calls the step of the callee.

Cells are passed as arguments.  CPython's LOAD_DEREF reads whatever cell sits in its slot, so a cell argument that is
declared a cell variable and not made again by MAKE_CELL serves as the variable's cell.
"""
from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from framejit import _native as native
from framejit.bytecode.assemble import assemble_variant
from framejit.bytecode.decode import Decoded, Handler, Instruction, decode
from framejit.bytecode.emitter import TAIL, Emitter
from framejit.bytecode.for_iterators import CLEARS_AWAY, HAS_NULL
from framejit.bytecode.instr import CellVar, FreeVar, Instr, Label, Location, TryBegin, TryEnd
from framejit.bytecode.liveness import RETURNS, UNBINDS
from framejit.bytecode.resume_code import NOT_PASSED, Layout, ResumeCode, Site, StackKinds, StackSlot
from framejit.bytecode.spellings import ENTER_WITH
from framejit.capture.breaks.signal_places import may_look_before, next_look
from framejit.capture.breaks.stack_effects import Exit, branch_after, exits
from framejit.events.meter import meter
from framejit.guards.sources import static_lookup

if TYPE_CHECKING:
    from framejit.interpreter.provenance import Origins


class _NotHeld:
    def __repr__(self) -> str:
        return "<not held>"


NOT_HELD = _NotHeld()
"""In a variable that nothing reads again."""
_EMPTY_CELL = CellType()


@dataclass
class ResumePoints:
    """The resume functions that belong to one optimized function; they live and die with it."""

    on_miss: Callable[..., Any]
    options: Any
    functions: dict[Any, FunctionType] = field(default_factory=dict)
    dispatchers: dict[int, native.Dispatcher] = field(default_factory=dict)
    # keyed by ids of what the frames keep alive
    steps: dict[Any, tuple[native.Dispatcher, list[BrokenFrame]]] = field(default_factory=dict)
    entries: list[native.Entry] = field(default_factory=list)  # of steps, whose slots they own
    changing: set[str] = field(default_factory=set)  # variables holding numbers that differ from call to call
    tensor_steps: set[native.Dispatcher] = field(default_factory=set)  # those that carry out an operation on a tensor
    origins: Origins | None = None  # from the first capture of this process on
    raising: dict[tuple[int, int], tuple[CodeType, str]] = field(default_factory=dict)
    """Operations that raised when graphs ran them, by id of their code and index there, with the code and what was
    raised."""
    sizes_known: bool = False  # whether the backend has had to do without symbolic sizes

    def function(
        self, frame: BrokenFrame, index: int, layout: Layout, inner: FunctionType | None = None
    ) -> FunctionType:
        """The function that goes on at instruction `index` of the frame's code.

        With `inner` it first finishes the call at `index`: it takes that inner resume function, and the arguments for
        it, and goes on behind the call with its result. Each inner function has an outer one of its own: what is
        assumed about arguments at one place says nothing about those at another.
        """
        code = frame.code
        key = (id(code), id(frame.globals), id(frame.builtins), index, layout, id(inner))
        found = self.functions.get(key)
        if found is None:
            inner_args = None if inner is None else inner.__code__.co_argcount
            inner_fresh = () if inner is None else inner._framejit_resume.fresh  # type: ignore[attr-defined]
            made, indices, n_taking_over = _resume_code(code, index, layout, inner_args)
            found = self.functions[key] = native.function_with_builtins(made, frame.globals, frame.builtins)
            found.__qualname__ = code.co_qualname
            fresh = self._fresh(layout, inner_fresh)
            resume = ResumeCode(layout, code, index, indices, fresh, n_taking_over, inner)
            found._framejit_resume = resume  # type: ignore[attr-defined]
        return found

    def interrupted(self, fn: FunctionType, error: BaseException) -> FunctionType:
        """A function that goes on as a resume function does, and raises an exception there, before anything else."""
        raising = _raising(fn)
        native.raise_later(error)
        return raising

    def interrupted_entry(self, fn: FunctionType, error: BaseException) -> native.Entry:
        """An entry for one call of a resume function, which raises an exception where that goes on."""
        raising = self.interrupted(fn, error)
        return native.Entry(raising.__code__, raising, native.GuardTree([]), (), native.RUNS_USER_CODE)

    def _fresh(self, layout: Layout, inner_fresh: tuple[int, ...]) -> tuple[int, ...]:
        kinds = [k for k in layout.stack if k not in NOT_PASSED]
        own = tuple(i for i, k in enumerate(kinds) if k == StackSlot.RESULT)
        return own + tuple(len(layout.parameters()) + 1 + i for i in inner_fresh)

    def dispatcher(self, fn: FunctionType) -> native.Dispatcher:
        """The Dispatcher through which a resume function is captured."""
        found = self.dispatchers.get(id(fn))
        if found is None:
            found = self.dispatchers[id(fn)] = native.Dispatcher(fn, self.on_miss, self.options)
            found.resume_points = self  # type: ignore[attr-defined]
        return found


class _Raising(NamedTuple):
    inner: FunctionType | None
    """What raises where the frame waits for the end of a call; without one that is for the frame itself to do."""


def _raising(fn: FunctionType) -> FunctionType:
    resume: ResumeCode = fn._framejit_resume  # type: ignore[attr-defined]
    inner = None
    if resume.inner is not None and may_look_before(decode(resume.original), resume.index):
        inner = _raising(resume.inner)  # type: ignore[arg-type]  # mypy binds the function to the tuple
    n_inner = None if resume.inner is None else resume.inner.__code__.co_argcount
    code, _, _ = _resume_code(resume.original, resume.index, resume.layout, n_inner, _Raising(inner))
    given: Any = fn  # what mypy keeps of the type of functions between two runs has no __builtins__
    made = native.function_with_builtins(code, given.__globals__, given.__builtins__)
    made.__qualname__ = fn.__qualname__
    return made


def _listing(decoded: Decoded, labels: dict[int, Label]) -> tuple[list[Any], list[int]]:
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


def _location(ins: Instruction) -> Location | None:
    return ins.original.location if ins.original else None


def _enter(em: Emitter, layout: Layout) -> None:
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


def _hand_over(em: Emitter, parameters: list[str]) -> None:
    """Push arguments that this frame has for the one below it only; like `_enter`, it keeps none."""
    for name in parameters:
        em.load_fast(name)
        em.op("DELETE_FAST", name)


INNER_FUNCTION = "__inner_function"


def _resume_code(
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
    body, indices = _listing(decoded, labels)
    em = Emitter(decoded.instructions[index].line or code.co_firstlineno)
    em.op("RESUME", 0)
    em.take_over_arguments()
    n_taking_over = len(em.instructions)
    _enter(em, layout)
    if inner_args is not None:
        names = [f"__inner{i}" for i in range(inner_args)]
        parameters += [INNER_FUNCTION, *names]
        em.call(
            lambda: em.op("LOAD_CONST", raising.inner) if raising and raising.inner else em.load_fast(INNER_FUNCTION),
            lambda: _hand_over(em, names),
            inner_args,
        )
    if raising is not None and raising.inner is None:
        with em.apart() as looking, em.at(_location(decoded.instructions[look])):
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
        assemble_variant(em.instructions, code, parameters, cells=_all_cells(code, layout), body=body),
        prologue + indices,
        n_taking_over,
    )


def _all_cells(code: CodeType, layout: Layout) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*layout.cells, *decode(code).cells, *code.co_freevars)))


# ---- steps ----------------------------------------------------------------------------------------


def stack_in_handler(handler: Handler, stack: StackKinds) -> StackKinds:
    """The kinds of stack slots once a handler took an exception that was raised over `stack`."""
    offset = (StackSlot.OFFSET,) if handler.push_lasti else ()
    return (*stack[: handler.depth], *offset, StackSlot.PREVIOUS, StackSlot.VALUE)


@dataclass
class BrokenFrame:
    """A frame at a graph break: where it stands and what it holds."""

    code: CodeType
    globals: dict[str, Any]
    builtins: dict[str, Any]
    instruction: Instruction
    stack: StackKinds  # kinds of slots before the instruction (for callers: without the call's operands)
    bound: frozenset[str]  # variables that have a value
    cells: tuple[str, ...]
    keyword_names: tuple[str, ...] = ()
    # variables and cells that nothing reads again, and that keep alive what they hold
    held: frozenset[str] = frozenset()

    def layout_before(self) -> Layout:
        """The arguments of the step: what the broken instruction, and all behind it, reads."""
        live = self._live_before()
        return Layout(
            self.stack, self._variables(live, self.bound), tuple(c for c in self.cells if c in live or c == "__class__")
        )

    def layout_resumed(self) -> Layout:
        """The arguments of the resume function that finishes the call which this frame makes."""
        return self._resumed(self.stack, self.instruction.index, self._live_before(), self.bound)

    def layout_at(self, index: int, stack: StackKinds) -> Layout:
        """The arguments of the resume function that goes on at instruction `index`, with this stack."""
        return self._resumed(stack, index, set(decode(self.code).live_at(index)), self.bound_after())

    def bound_after(self) -> frozenset[str]:
        """The variables that have a value once the instruction was carried out."""
        ins = self.instruction
        if ins.name == "STORE_FAST":
            return self.bound | {ins.arg}
        return self.bound - {ins.arg} if ins.name in UNBINDS else self.bound

    def not_read_again(self) -> list[str]:
        """Variables and cells that hold something and are not in `layout_before`."""
        before = self.layout_before()
        may_hold = self.bound & decode(self.code).bound_at(self.instruction.index) | set(self.cells)
        return sorted(may_hold.difference(before.variables, before.cells))

    def exits_of_instruction(self) -> list[Exit]:
        return exits(self.instruction, self.stack, decode(self.code).instructions)

    def resumed_at(self, is_innermost: bool) -> list[tuple[Site, StackKinds]]:
        """Where this frame may be resumed, and the kinds of stack slots there."""
        code, index = id(self.code), self.instruction.index
        if is_innermost:
            sites = [(Site(code, out.index, False), out.stack) for out in self.exits_of_instruction()]
        else:
            sites = [
                (Site(code, index, True), self.stack),
                (Site(code, index + 1, False), (*self.stack, StackSlot.RESULT)),
            ]
        for handler, stack in self.handlers(is_innermost):
            sites.append((Site(code, handler.target + 1, False), stack_in_handler(handler, stack)))
        return sites

    def handler_at(self, index: int) -> Handler | None:
        return decode(self.code).instructions[index].handler

    def handlers(self, is_innermost: bool) -> list[tuple[Handler, StackKinds]]:
        """The exception handlers of the instruction and, where this frame is the one that carries it out, of the
        instructions that it leads to; each with the stack it is found with."""
        places = [(self.instruction.index, self.stack)]
        if is_innermost:
            places += [(out.index, out.stack) for out in self.exits_of_instruction()]
        return [(handler, stack) for index, stack in places if (handler := self.handler_at(index)) is not None]

    def _live_before(self) -> set[str]:
        decoded = decode(self.code)
        live = set(decoded.live_at(self.instruction.index))
        if self.instruction.handler is not None:
            live |= decoded.live_at(self.instruction.handler.target)
        for out in self.exits_of_instruction():  # with their handlers
            live |= decoded.live_at(out.index)
        return live

    def _variables(self, names: set[str], bound: frozenset[str]) -> tuple[str, ...]:
        return self._as_they_end((names & bound) - set(self.cells))

    def _resumed(self, stack: StackKinds, index: int, live: set[str], bound: frozenset[str]) -> Layout:
        may_hold = decode(self.code).bound_at(index) - live - set(self.cells)
        return Layout(stack, self._as_they_end({*self._variables(live, bound), *may_hold}), self.cells)

    def _as_they_end(self, variables: set[str]) -> tuple[str, ...]:
        """Names of variables in the order in which a frame lets go of what they hold."""
        places = {name: i for i, name in enumerate(self.code.co_varnames)}
        return tuple(sorted(variables, key=lambda name: (places.get(name, len(places)), name)))


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
    code = assemble_variant(em.instructions, frame.code, parameters, cells=_all_cells(frame.code, own), body=body)
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
        return _listing(decode(self.frame.code), copied)[0] if copied else []


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
        _hand_over(em, [call])
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
    with em.at(_location(frame.instruction)):
        em.call(lambda: em.load_object(inner.function), lambda: _hand_over(em, parameters), len(parameters))
    em.return_value()
    return _step_entry(points, frame, em, [], parameters, Layout((), (), ()))


def _innermost_step(
    points: ResumePoints, outers: list[Outer], frame: BrokenFrame, own: Layout, parameters: list[str], looks: bool
) -> native.Entry:
    ins = frame.instruction
    em = Emitter(ins.line)
    em.op("RESUME", 0)
    em.take_over_arguments()
    _enter(em, own)
    outs = frame.exits_of_instruction()
    jump = Label()

    def emit() -> None:
        with em.at(_location(ins)):
            if looks and may_look_before(decode(frame.code), ins.index):
                em.handle_signals()  # those that came while the graph ran
            _emit_for_real(em, frame, jump)

    regions = _TryRegions(points, outers, frame, em, looks)
    regions.protect(ins.index, own.stack, emit)
    for out in outs:
        if out.is_jump:
            em.place(jump)
            if ins.name == "FOR_ITER":
                for name in CLEARS_AWAY:
                    em.op(name)
        with em.at(_location(ins)):
            regions.handle_signals(out)
        if meter.running:
            place = (frame.code.co_filename, ins.line or 0, ins.column, ins.end_column)
            em.call_object(partial(meter.ran_break, place), list, 0)
            em.pop()
        _leave(points, outers, frame, em, out)
    return _step_entry(points, frame, em, regions.leave_for_handlers(), parameters, own)


def _emit_for_real(em: Emitter, frame: BrokenFrame, jump: Label) -> None:
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
        em.call_object(iter, lambda: _hand_over(em, [iterable]))
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
    _hand_over(em, [manager])
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


def _calling_step(
    points: ResumePoints, frame: BrokenFrame, own: Layout, inner: native.Dispatcher, read_inside: list[str],
    held_inside: list[str]
) -> native.Dispatcher:
    """Carry out the call of the step `inner`, inside the try and with blocks of this frame; the rest of the arguments
    are for that."""
    em = Emitter(frame.instruction.line)
    em.op("RESUME", 0)
    em.take_over_arguments()
    _enter(em, own)

    def emit() -> None:
        with em.at(_location(frame.instruction)):
            names = read_inside + held_inside
            em.call_object(
                native.make_tail_call, lambda: em.call_slot(inner, TAIL, lambda: _hand_over(em, names), len(names))
            )

    after = Exit(frame.instruction.index + 1, (*own.stack, StackSlot.RESULT), False)
    regions = _TryRegions(points, [], frame, em, looks=True)
    regions.protect(frame.instruction.index, own.stack, emit)
    _leave(points, [], frame, em, after)
    parameters = own.parameters() + read_inside + sorted(frame.held) + held_inside
    return _step_dispatcher(points, _step_entry(points, frame, em, regions.leave_for_handlers(), parameters, own))
