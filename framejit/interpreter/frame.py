"""A frame under symbolic execution: its variables, its stack, and the loop that steps its instructions."""

from __future__ import annotations

import builtins
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.bytecode.decode import Instruction, decode
from framejit.bytecode.instr import Location
from framejit.config import config
from framejit.events.place import Place
from framejit.guards.sources import (
    BuiltinSource,
    DictSource,
    GlobalSource,
    OwnGlobalsSource,
    Source,
    const_source,
    key_source,
)
from framejit.interpreter.frame_policy import is_indivisible
from framejit.interpreter.opcodes import BREAKS, HANDLERS
from framejit.interpreter.operations import Operations
from framejit.interpreter.policy import refuse_inlining
from framejit.interpreter.provenance import operands, place_of
from framejit.signals import LooksAtFrame, Raised, RaisesAsCompiled, Restart, SkipFrame, Unsupported, forget_frames
from framejit.values.base import Value, realize
from framejit.values.containers.mapping import DictValue
from framejit.values.objects.exception_values import NULL, PreviousException, RaisedAt, RaisingOffset
from framejit.values.objects.functions.function_values import CallableValue, CellValue, FunctionValue
from framejit.values.objects.functions.generators import GeneratorValue
from framejit.values.objects.functions.model_values import is_model_namespace, model_global

if TYPE_CHECKING:
    from framejit.bytecode.resume_code import ResumeCode
    from framejit.interpreter.capturing import Capture
    from framejit.values.objects.exception_values import ExceptionValue

GENERATOR, COROUTINE, ASYNC_GENERATOR, ITERABLE_COROUTINE = 0x20, 0x80, 0x200, 0x100


class Returned(Exception):
    """Leaves the run loop with the frame's result."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Yielded(Exception):
    """Leaves the run loop of a generator frame at a yield."""

    def __init__(self, value: Value) -> None:
        self.value = value


class Frame(Operations):
    """One activation of a code object.

    `caller` is the frame that called it; `breakable` says that its result is exactly what the caller's current
    instruction pushes, so that the graph may break inside and the caller go on from there.
    """

    seq: int  # the step of the capture that executes the current instruction

    def __init__(
        self,
        capture: Capture,
        code: CodeType,
        globals: dict[str, Any],
        globals_source: Source | None,
        variables: dict[str, Value],
        cells: dict[str, CellValue],
        caller: Frame | None,
        breakable: bool,
        resume: ResumeCode | None = None,
        function: FunctionType | None = None,
    ) -> None:
        self.capture, self.code, self.globals, self._globals_source = capture, code, globals, globals_source
        self.locals, self.cells, self.caller, self.breakable = variables, cells, caller, breakable
        self.resume, self.function = resume, function
        self.decoded = decode(code)
        self.instructions = self.decoded.instructions
        self.stack: list[Value] = []
        self.pc = 0 if resume is None else resume.n_taking_over
        self.seq = 0
        self.running = False
        self.depth: int = 0 if caller is None else caller.depth + 1
        self.keyword_names: tuple[str, ...] = ()
        self.handled: list[Value] = []  # exceptions being handled, innermost last
        self.name = code.co_qualname
        self.hidden = is_model_namespace(globals)  # stands for C code: the program and its users don't see it
        self.whole = is_indivisible(code, globals)  # it is captured as a whole or not at all
        self.shown: DictValue | None = None  # what locals() gave
        self.catches = 0  # how many of framejit's own try blocks (hasattr, next, ...) are open at this instruction
        self._saved_stack: list[Value] = []

    def close(self) -> None:
        """At the end of the capture: let go of all that is in the frame, some of which may hold the frame."""
        for part in (self.locals, self.cells, self.stack, self.handled, self._saved_stack):
            part.clear()
        self.__dict__.clear()

    # ---- stack and variables ------------------------------------------------------------------

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def push_null(self) -> None:
        self.stack.append(NULL)

    def pop(self) -> Value:
        """Take the top value, looking at it (which guards what it is)."""
        return realize(self, self.stack.pop())

    def pop_unseen(self) -> Value:
        """Take the top value without looking at it: for moves, which assume nothing."""
        return self.stack.pop()

    def peek(self, depth: int) -> Value:
        """The value `depth` places down (1 is the top), looked at."""
        return realize(self, self.stack[-depth])

    def pop_n(self, n: int) -> list[Value]:
        """Take the top `n` values without looking at them."""
        if not n:
            return []
        popped = self.stack[-n:]
        del self.stack[-n:]
        return popped

    def variable(self, name: str) -> Value | None:
        """A local or cell variable's value; None if it is unbound."""
        if name in self.cells:
            contents = self.cells[name].contents
            return None if contents is None else realize(self, contents)
        found = self.locals.get(name)
        return None if found is None else realize(self, found)

    def held(self) -> list[Value]:
        """All values the frame holds, also those its current instruction has taken from the stack."""
        return [*self.locals.values(), *self.cells.values(), *self.stack, *self._saved_stack]

    def forget_saved_stack(self) -> None:
        """The current instruction is not going to be put back to where it began."""
        self._saved_stack = []

    def held_to_the_end(self) -> list[Value]:
        """The values of variables and cells, in the order in which a frame lets go of them; all that is left of a frame
        in a traceback."""
        places = {name: i for i, name in enumerate(self.origin[0].co_varnames)}
        names = sorted(self.locals, key=lambda name: places.get(name, len(places)))
        held: list[Value] = [
            *(self.locals[name] for name in names if self.locals[name] is not NULL),
            *self.cells.values(),
        ]
        return held[::-1] if sys.version_info >= (3, 14) else held  # a frame then begins with its last variable

    def globals_source(self) -> Source:
        if self._globals_source is None:
            return OwnGlobalsSource(self.capture.name)
        module = sys.modules.get(self.globals.get("__name__", ""))
        if module is not None and module.__dict__ is self.globals:
            return DictSource(const_source(module, module.__name__))
        return self._globals_source

    def load_global(self, name: str) -> Value:
        if self.hidden:
            return model_global(self.globals, name)
        if type(self.globals) is not dict:  # its class says what it has
            raise Unsupported(f"looking up {name!r} in globals that are no plain dict", "FJ115")
        known = self.capture.known(self.globals)
        seen = known if isinstance(known, DictValue) else None  # as a dict, which may have been changed
        if seen is not None and name in seen.items:
            return realize(self, seen.items[name])
        written = self.capture.effects.globals_of(self.globals)
        found = written.get(name)
        if found is not None:
            return found
        if seen is None and name in self.globals and name not in written:
            root = self._globals_source is None
            return self.wrap(
                self.globals[name], GlobalSource(name) if root else key_source(self.globals_source(), name)
            )
        namespace = self.builtins
        if self.caller is not None and namespace is not vars(builtins):
            raise Unsupported(f"looking up {name!r} in a namespace with builtins of its own", "FJ115")
        is_hidden = name in self.globals  # until the replay deletes it
        if not is_hidden:
            self.capture.add_guard(self.globals_source(), native.C_NO_KEY, name)
        if name in self.capture.effects.globals_of(namespace):
            raise Unsupported(f"the builtin {name!r}, which the captured code has replaced", "FJ115")
        if name not in namespace:
            raise self.raised(NameError, f"name {name!r} is not defined")
        return self.wrap(namespace[name], const_source(namespace[name], name) if is_hidden else BuiltinSource(name))

    def has_global(self, name: str) -> bool:
        """Whether a name is among the globals themselves, so that it can be deleted."""
        seen = self.capture.known(self.globals)
        if isinstance(seen, DictValue):
            return name in seen.items
        written = self.capture.effects.globals_of(self.globals)
        if name in written:
            return written[name] is not None
        if name in self.globals:
            self.load_global(name)  # which is guarded
            return True
        self.capture.add_guard(self.globals_source(), native.C_NO_KEY, name)
        return False

    @property
    def builtins(self) -> dict[str, Any]:
        """Where names are looked up last: what the globals named when the function was made."""
        function: Any = self.function  # what mypy keeps of the type of functions between two runs has no __builtins__
        if function is not None:
            namespace: dict[str, Any] = function.__builtins__
            return namespace
        found = self.globals.get("__builtins__", builtins)
        return found if isinstance(found, dict) else vars(found)

    @property
    def instruction(self) -> Instruction:
        return self.instructions[self.pc]

    @property
    def origin(self) -> tuple[CodeType, int]:
        """Code and index of the current instruction; in a resume function, those in the code it was made from (-1 in
        its prologue)."""
        if self.resume is None:
            return self.code, self.pc
        return self.resume.original, self.resume.indices[self.pc]

    @property
    def place(self) -> Place:
        """The expression the current instruction is a part of."""
        return place_of(self.code, self.instruction)

    # ---- the loop -------------------------------------------------------------------------------

    def run(self) -> Value:
        """Execute to the end; the frame's result."""
        try:
            self._loop()
        except Returned as done:
            return done.value
        raise AssertionError("a frame ran off its end")

    def start_generator(self) -> None:
        """Execute what stands before RETURN_GENERATOR: from 3.15 on a generator expression takes its iterator when it
        is made."""
        self._loop(until="RETURN_GENERATOR")

    def resume_generator(self, sent: Value | None, raising: Raised | None) -> tuple[str, Value]:
        """Run a generator frame to its next yield or its end: ("yield" or "return", value)."""
        try:
            if raising is not None:
                if not self._unwind(raising.value):
                    raise Raised(raising.value)
            elif sent is not None:
                self.push(sent)
            self._loop()
        except Returned as done:
            return "return", done.value
        except Yielded as out:
            return "yield", out.value
        raise AssertionError("a generator ran off its end")

    def _loop(self, until: str = "") -> None:
        capture, before = self.capture, self.capture.frame
        capture.frame, self.running = self, True
        try:
            while self.instructions[self.pc].name != until:
                self.step()
        finally:
            capture.frame, self.running = before, False

    def step(self) -> None:
        """Execute the current instruction."""
        capture, ins = self.capture, self.instructions[self.pc]
        self.seq = capture.next_step()
        self._saved_stack = self.stack[:]
        saved_names, mark = self.keyword_names, capture.progress()
        try:
            forced = capture.forced.get(self.seq)
            if forced is not None:
                raise forced
            if capture.raising:
                capture.refuse_what_raised(*self.origin)
            handler = HANDLERS.get(ins.name)
            if handler is None:
                raise Unsupported(BREAKS.get(ins.name, f"opcode {ins.name}"), "FJ160")
            target = handler(self, ins)
            self.pc = self.pc + 1 if target is None else target
        except Raised as e:
            self.pc = ins.index
            if not self.hidden and not self._is_handled():
                if capture.said_compiling:
                    raise RaisesAsCompiled from None
                self._break(Unsupported(f"raises {e.value.cls.__name__}", "FJ161"), saved_names, mark)
            if not self._unwind(e.value):
                raise
            forget_frames(e)
        except Unsupported as e:
            if self.hidden:  # what it stands for runs as a whole
                raise
            self.pc = ins.index
            self._break(e, saved_names, mark)
        except RecursionError:
            raise SkipFrame("the call stack is too deep to capture", "FJ203") from None

    def _break(self, reason: Unsupported, names: tuple[str, ...], mark: Any) -> None:
        """Break the graph at the current instruction; does not return."""
        if self.capture.selecting is not None:
            self.capture.break_at(self.seq, reason)
        if reason.operands is None:
            reason.operands = operands(self, self._saved_stack)
        unbreakable = [
            f for f in self.chain() if not f.breakable or f.whole or f is self and isinstance(reason, LooksAtFrame)
        ]
        if unbreakable:  # the outermost such call is made for real, as a whole
            caller = unbreakable[-1].caller
            if caller is None:
                raise SkipFrame(reason.reason, reason.code)
            self.capture.note_inner_break(self, reason)
            raise Restart(caller.seq, reason.again())
        if self.capture.progress() != mark:  # the instruction was carried out in part
            reason.operands = None  # they are this capture's, which ends here
            raise Restart(self.seq, reason)
        self.stack[:] = self._saved_stack
        self.keyword_names = names
        self.capture.break_graph(self, reason)

    def chain(self) -> list[Frame]:
        """The frame and its callers, innermost first, up to the root."""
        frames, walk = [], self
        while walk is not None:
            frames.append(walk)
            walk = walk.caller  # type: ignore[assignment]
        return frames

    # ---- exceptions -----------------------------------------------------------------------------

    def _is_handled(self) -> bool:
        """Whether this frame or a caller has a handler where it stands, so that the exception stays in the capture."""
        return any(f.instruction.handler is not None or f.catches for f in self.chain())

    def _unwind(self, exc: ExceptionValue) -> bool:
        """Enter the handler of the current instruction; False without one."""
        handler = self.instructions[self.pc].handler
        if not self.hidden:
            if exc.seq < 0:
                exc.seq = self.seq
            ins, code = self.instruction, self.code
            # these go on with the traceback as it is
            if ins.name != "RERAISE" and not (ins.name == "RAISE_VARARGS" and ins.arg == 0):
                location = Location(ins.line or code.co_firstlineno, ins.end_line, ins.column, ins.end_column)
                exc.places.append(
                    RaisedAt(code.co_filename, code.co_name, code.co_qualname, code.co_firstlineno, location)
                )
        if handler is None:
            return False
        del self.stack[handler.depth :]
        if handler.push_lasti:
            self.stack.append(RaisingOffset())
        self.stack.append(exc)
        self.pc = handler.target
        return True

    def enter_handler(self, exc: Value) -> None:
        """Begin to handle an exception, as the opcode PUSH_EXC_INFO does: it becomes the one being handled, and the one
        before goes onto the stack."""

        self.stack.append(PreviousException(exc))
        self.stack.append(exc)
        self.handled.append(exc)

    def handled_exception(self) -> Value | None:
        """The exception that this frame, or a caller of it in the capture, handles; None if there is none."""
        for frame in self.chain():
            if frame.handled and not frame.hidden:
                return frame.handled[-1]
        return None

    def current_exception(self) -> Value:
        """The value of `sys.exception()`: also the caller of the captured function may be handling an exception."""
        return self.handled_exception() or self.capture.exception_of_caller()

    def visible(self) -> Frame:
        """The frame itself, or the one whose instruction it stands for."""
        frame = self
        while frame.hidden and frame.caller is not None:
            frame = frame.caller
        return frame

    # ---- inlining -------------------------------------------------------------------------------

    def inline(self, fn: CallableValue, bound: dict[str, Value], breakable: bool = False) -> Value:
        """Run a Python function inside this frame."""
        refusal = refuse_inlining(fn, self.depth)
        if refusal is not None:
            if self.depth >= config.max_inline_depth:
                self.capture.leave_recursion(refusal, bound.values())
            try:
                raise refusal
            finally:
                del refusal  # it holds this frame, once it is raised
        if isinstance(fn, FunctionValue):
            self.capture.assumed.inlines(fn.fn)
        code = fn.code
        resume: ResumeCode | None = getattr(fn.fn, "_framejit_resume", None) if isinstance(fn, FunctionValue) else None
        cells: dict[str, CellValue] = {}
        for name in resume.layout.cells if resume is not None else ():
            cell = realize(self, bound.pop(name))
            assert isinstance(cell, CellValue)
            cells[name] = cell
        for name in code.co_cellvars if resume is None else ():
            cells[name] = CellValue(bound.pop(name, None))
        cells.update(zip(code.co_freevars, fn.closure(self)))
        same_globals = fn.globals is self.capture.root.globals
        frame = Frame(
            self.capture,
            code,
            fn.globals,
            None if same_globals else (fn.globals_source() or self._globals_source),
            bound,
            cells,
            self,
            breakable,
            resume,
            fn.fn if isinstance(fn, FunctionValue) else None,
        )
        if code.co_flags & GENERATOR:
            frame.breakable = False
            frame.start_generator()
            return GeneratorValue(frame, self.seq, fn)
        if code.co_flags & (COROUTINE | ASYNC_GENERATOR | ITERABLE_COROUTINE):
            raise Unsupported(f"{fn.describe()} is a coroutine", "FJ117")
        return frame.run()
