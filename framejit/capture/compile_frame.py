"""The entry point: one call that no entry fits becomes an entry, or is left to plain Python."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import os
import time
from types import CodeType, FunctionType
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.graph_identity import identify
from framejit.backends.registry import compile_with_backend
from framejit.bytecode.decode import Instruction, decode
from framejit.capture.capture import Broken, Capture
from framejit.capture.codegen import Codegen
from framejit.capture.collector import resting, working
from framejit.capture.entry_tag import EntryTag
from framejit.capture.provenance import in_program_terms, of_break, of_guard, place_of
from framejit.capture.resume import NULL_SLOT, OFFSET_SLOT, PREVIOUS_SLOT, VALUE_SLOT, BrokenFrame, ResumePoints, build_step
from framejit.config import config
from framejit.errors import BackendError, GraphBreakError, GuardError, RecompileLimit
from framejit.events import emit, listening, warn
from framejit.guards import tensor_layout  # noqa: F401  calibrates the native tensor guards
from framejit.guards.diff import Miss, explain_miss
from framejit.guards.guard import GuardRecord, record
from framejit.guards.lower import lower
from framejit.guards.tree_text import render
from framejit.interpreter import attributes, calls, containers, control_flow, exceptions, functions, operator_ops, stack_ops, variables  # noqa: F401  register opcodes
from framejit.interpreter.policy import frame_reader, may_hold_tensors
from framejit.progress import doing
from framejit.values import own_functions  # noqa: F401  register framejit's own functions
from framejit.values.base import Value
from framejit.values.exceptions import NULL, ExceptionValue, PreviousException, RaisingOffset
from framejit.values.scalar import ScalarValue
from framejit.values.signals import Restart, SkipFrame, Unsupported
from framejit.values.tensor import TensorValue

_frame_ids = itertools.count(1)
_graph_ids = itertools.count(1)
MAX_RESTARTS = 200
TENSOR_OPERATIONS = frozenset(f"FJ10{i}" for i in range(1, 8))
"""Codes of breaks at an operation on a tensor, which then runs outside graphs."""
RAISES, STEPS_LOOP = "FJ161", "FJ150"


def on_miss(owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> native.Entry | None:
    """Capture the frame `fn(*flat_args)`.

    Returns the entry to run, or None to run the function as it is.  Raises only what the user asked for
    (GraphBreakError under fullgraph); anything unexpected becomes one warning and plain Python.
    """
    options = owner.options
    if any(entry.tag.full for entry in owner.entries):
        return None
    try:
        with resting(), doing(lambda: f"compiling {fn.__qualname__} ({os.path.basename(_place(fn)[0])}:{_place(fn)[1]})"):
            return FrameCompiler(owner, fn, flat_args).compile()
    except (GraphBreakError, BackendError) as e:
        if options.fullgraph:
            raise
        _skip(owner, fn, str(e), "eager", "FJ202")
        warn(str(e), _place(fn))
        return None
    except LimitReached as e:
        if options.fullgraph:
            raise RecompileLimit(f"{fn.__qualname__}: {e}") from None
        _report(fn, str(e), "eager", "FJ210")  # its entries go on serving the calls they fit
        return None
    except (SkipFrame, Unsupported) as e:  # Unsupported: the frame's state at its end or break can't be handed to plain Python
        if options.fullgraph:
            raise GraphBreakError(f"{fn.__qualname__} can't be captured: {e.reason}") from None
        _skip(owner, fn, e.reason, "skipped", e.code)
        return None
    except Exception as e:
        if config.debug:
            raise
        _skip(owner, fn, f"internal error: {type(e).__name__}: {e}", "eager", "FJ298")
        warn(
            f"framejit could not capture {fn.__qualname__} ({type(e).__name__}: {e}); it runs as plain Python. This is a defect in framejit: please report it.",
            _place(fn),
        )
        return None


def _place(fn: FunctionType) -> tuple[str, int]:
    return fn.__code__.co_filename, fn.__code__.co_firstlineno


class LimitReached(Exception):
    """A function has as many entries as config.recompile_limit allows."""


def _skip(owner: Any, fn: FunctionType, reason: str, state: str, code: str) -> None:
    owner.skip = True
    _report(fn, reason, state, code)


def _report(fn: FunctionType, reason: str, state: str, code: str) -> None:
    place = fn.__code__
    emit(
        "frame_done",
        frame_id=next(_frame_ids),
        function=place.co_qualname,
        file=place.co_filename,
        line=place.co_firstlineno,
        state=state,
        reason=reason,
        code=code,
        seconds=0.0,
        n_graphs=0,
        n_ops=0,
        n_guards=0,
    )


class FrameCompiler:
    def __init__(self, owner: Any, fn: FunctionType, flat_args: tuple[Any, ...]) -> None:
        self.owner, self.fn, self.flat_args, self.options = owner, fn, flat_args, owner.options
        self.resumes = hasattr(fn, "_framejit_resume")
        known = getattr(owner, "resume_points", None) or next((e.tag.resume_points for e in owner.entries), None)
        self.points: ResumePoints = known or ResumePoints(on_miss, owner.options)  # all entries of a function share its resume functions
        self.frame_id = next(_frame_ids)
        self.started = time.perf_counter()

    @property
    def place(self) -> dict[str, Any]:
        """The frame as events name it; the call of a module by its class, not by nn.Module's own wrapper."""
        resume = getattr(self.fn, "_framejit_resume", None)
        code, options = self.fn.__code__ if resume is None else resume.original, self.options
        if options.file is not None and code is torch.nn.Module._wrapped_call_impl.__code__:
            return {"frame_id": self.frame_id, "function": options.name, "file": options.file, "line": options.line}
        return {"frame_id": self.frame_id, "function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}

    def compile(self) -> native.Entry | None:
        emit("capture_started", **self.place, fn=self.fn, flat_args=self.flat_args)
        changing = self._changing_numbers(self._explain_recompile())
        reader = frame_reader(self.fn.__code__)
        if reader is not None:
            raise SkipFrame(reader, "FJ201")
        if not isinstance(self.owner, native.Dispatcher) and not may_hold_tensors(self.flat_args):
            raise SkipFrame("no tensor or module among the arguments", "FJ207")
        if self.fn.__code__.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise SkipFrame("a generator or coroutine, whose frame runs in pieces", "FJ208")
        forced: dict[int, Unsupported] = {}
        if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack() is not None:
            # Operations mean something else here; the entry is guarded by this state.
            outside = Capture(self.fn, self.flat_args, forced)
            try:
                return self._plain_entry(outside, "a torch dispatch mode or functorch transform is active")
            finally:
                outside.close()
        for _ in range(MAX_RESTARTS):
            capture = Capture(self.fn, self.flat_args, forced, changing | self.points.changing)
            try:
                return self._attempt(capture)
            except Restart as again:
                if again.seq in forced:
                    raise SkipFrame(again.reason.reason, again.reason.code) from None
                forced[again.seq] = again.reason
            finally:
                capture.close()
        raise SkipFrame("too many restarts", "FJ205")

    def _explain_recompile(self) -> list[tuple[native.Entry, Miss | None]]:
        """Say why no entry fits; each entry with the guard it missed."""
        entries = self.owner.entries
        if not entries:
            return []
        missed = [(entry, explain_miss(entry.tag.records, entry.guards, self.flat_args, self.fn)) for entry in entries]
        misses = [(m.text, m.expected, m.actual, m.source_name, m.user_line) for _, m in missed if m is not None]
        emit("recompile", **self.place, failures=self._in_words(misses), provenance=[self._origin(miss[3])[1] for miss in misses])
        if len(entries) >= config.recompile_limit:
            entries[-1].tag.full = True
            raise LimitReached(f"it was compiled {len(entries)} times, the recompile limit; last cause: {misses[-1][0] if misses else 'unknown'}")
        return missed

    def _origin(self, source_name: str) -> tuple[str, str]:
        resume = getattr(self.fn, "_framejit_resume", None)
        return of_guard(self.fn.__code__, resume, source_name, self.points.origins)

    def _renamed(self, guard: GuardRecord) -> GuardRecord:
        """A guard on an argument of a resume function, under the name the program has for the value."""
        if not guard.source_name.startswith("__"):
            return guard
        name, _ = self._origin(guard.source_name)
        return dataclasses.replace(guard, source_name=name, text=guard.text.replace(guard.source_name, name))

    def _in_words(self, misses: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Misses with the names of resume functions' arguments replaced by what the program calls these values."""
        said = []
        for text, expected, actual, source_name, user_line in misses:
            name, _ = self._origin(source_name)
            said.append((text.replace(repr(source_name), repr(name)), expected, actual, name, user_line))
        return said

    def _changing_numbers(self, missed: list[tuple[native.Entry, Miss | None]]) -> frozenset[str]:
        """Sources of numbers whose guards have failed before: assuming their values again would fail again."""
        code = self.fn.__code__
        resume = getattr(self.fn, "_framejit_resume", None)
        found = {code.co_varnames[i] for i in (resume.fresh if resume is not None else ())}
        for entry, miss in missed:
            if miss is not None:
                found.update(
                    r.source_name
                    for r in entry.tag.records
                    if r.source_name == miss.source_name and r.check == native.C_EQUALS and type(r.expected) in (int, float)
                )
            found |= entry.tag.changing
        self.points.changing.update(n for n in found if not n.startswith("__"))
        return frozenset(found)

    # ---- one attempt --------------------------------------------------------------------------------

    def _attempt(self, capture: Capture) -> native.Entry | None:
        try:
            result = capture.root.run()
        except Broken as broken:
            return self._finish_at_break(capture, broken)
        if capture.graph.n_ops == 0 and not self.resumes:
            return self._plain_entry(capture, "no tensor operations")
        if capture.graph.n_ops < config.min_graph_size and not self.resumes:
            return self._plain_entry(capture, f"fewer tensor operations than config.min_graph_size: {capture.graph.n_ops}")
        cg = self._codegen(capture, self.fn.__code__.co_firstlineno)
        cg.finish_return(result)
        return self._entry(capture, cg, "compiled", "")

    def _codegen(self, capture: Capture, line: int | None) -> Codegen:
        place = self.place
        return Codegen(capture, line, (place["function"], place["file"], place["line"]))

    def _finish_at_break(self, capture: Capture, broken: Broken) -> native.Entry | None:
        reason, chain = broken.reason, list(reversed(broken.frame.chain()))
        self._check_handled_exceptions(capture, chain, reason)
        self._report_break(capture, broken)
        frames, loads = [], []
        cg = self._codegen(capture, broken.frame.instruction.line)
        for frame in chain:
            kinds, slots = _slots(frame.stack)
            bound = frozenset(n for n, v in frame.locals.items() if v is not NULL)
            self.points.changing.update(n for n, v in frame.locals.items() if isinstance(cg.resolved(v), ScalarValue) and not n.startswith("__"))
            code, instruction = self._original_place(frame)
            self.points.origins.note(frame, code, instruction.index)
            frames.append(BrokenFrame(code, frame.globals, instruction, kinds, bound, tuple(frame.cells), frame.keyword_names))
            loads.append((frame, slots))
        step, layouts = build_step(self.points, frames)
        if reason.code in TENSOR_OPERATIONS:
            self.points.tensor_steps.add(step)
        args: list[Value] = []
        for (frame, slots), layout in zip(loads, layouts):
            args += slots
            args += [frame.locals[name] for name in layout.variables]
            args += [frame.cells[name] for name in layout.cells]
        cg.finish_tail_call(step, args)
        return self._entry(capture, cg, "compiled in parts", reason.reason)

    def _original_place(self, frame: Any) -> tuple[CodeType, Instruction]:
        """Code and instruction of a frame; for a resume function, those of the code it was made from.

        A resume function is a prologue and a copy of that code, so that breaks in it lead to the same resume
        functions as breaks in the original: a loop comes back to where it was.
        """
        if frame.resume is None:
            return frame.code, frame.instruction
        index = frame.resume.indices[frame.pc]
        if index < 0:
            raise SkipFrame("a graph break before the resume point", "FJ206")
        return frame.resume.original, decode(frame.resume.original).instructions[index]

    def _check_handled_exceptions(self, capture: Capture, chain: list[Any], reason: Unsupported) -> None:
        """An exception in flight that only exists in the capture must be raised for real: break where it was raised."""
        for frame in chain:
            for exc in [*frame.handled, *frame.stack]:
                if isinstance(exc, ExceptionValue) and exc.source is None and exc.seq >= 0 and exc.obj is None:
                    capture.break_at(exc.seq, Unsupported(f"raises {exc.cls.__name__}, and {reason.reason}", RAISES))

    def _report_break(self, capture: Capture, broken: Broken) -> None:
        frame, reason = broken.frame, broken.reason
        ins = frame.instruction
        capture.frame = frame
        stack = capture.user_stack()
        capture.frame = None
        reason.reason = in_program_terms(reason.reason, self.fn.__code__, getattr(self.fn, "_framejit_resume", None), self.points.origins)
        if reason.code in (RAISES, STEPS_LOOP):  # the program raises here, or goes on in its own loop: no break a user could mend
            return
        emit(
            "graph_break",
            frame_id=self.frame_id,
            function=frame.name,
            file=frame.code.co_filename,
            line=ins.line,
            column=ins.column,
            end_line=ins.end_line,
            end_column=ins.end_column,
            reason=reason.reason,
            provenance=of_break(frame, reason.operands or [], self.points.origins),
            code=reason.code,
            hint=reason.hint,
            user_stack=stack,
            in_graph_ops=capture.graph.n_ops,
            call_sites=[(place_of(code, ins), code) for code, ins in map(self._original_place, frame.chain())],
        )
        if self.options.fullgraph:
            raise GraphBreakError(
                reason.reason,
                function=frame.name,
                file=frame.code.co_filename,
                line=ins.line or 0,
                code=reason.code,
                hint=reason.hint or "",
                user_stack=stack[:-1],
            )

    def _plain_entry(self, capture: Capture, reason: str) -> native.Entry:
        """Nothing to compile for these guards: run the function's own code."""
        code = self.fn.__code__
        n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
        plain = code.replace(co_argcount=n, co_kwonlyargcount=0, co_posonlyargcount=0, co_flags=code.co_flags & ~0x0C)
        return self._make_entry(capture, plain, [], native.RUNS_USER_CODE, "eager", reason, 0)

    def _entry(self, capture: Capture, cg: Codegen, state: str, reason: str) -> native.Entry:
        has_nodes = any(n.op not in ("placeholder", "output") for n in capture.graph.graph.nodes)
        compiled, inputs = None, list[TensorValue]()
        if has_nodes:
            module, inputs, examples = capture.graph.finish(cg.outputs)
            cg.em.expect_sources([i.source for i in inputs if i.source is not None])
            compiled = self._compile_graph(capture, module, examples)
        code = cg.code(compiled, inputs, has_nodes)
        if listening():
            emit("bytecode", frame_id=self.frame_id, original=self.fn.__code__, rewritten=code)
        return self._make_entry(capture, code, cg.em.slots, 0, state, reason, int(has_nodes))

    def _compile_graph(self, capture: Capture, module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        graph_id = next(_graph_ids)
        identify(module, graph_id)
        emit("graph", frame_id=self.frame_id, graph_id=graph_id, graph_module=module, n_ops=capture.graph.n_ops, example_inputs=examples)
        capture.restore_state()
        if capture.graph.n_ops < config.min_graph_size:
            return module.forward
        with working():
            if self.options.verify:
                return self._compile_watched(module, examples)
            return compile_with_backend(self.options, module, examples, self.frame_id)

    def _compile_watched(self, module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
        from framejit.verify.graph_runs import before_compilation
        from framejit.verify.sampling import watched_graph

        graph, place = before_compilation(module, self.options), self.place
        compiled = compile_with_backend(self.options, module, examples, self.frame_id)
        return watched_graph(compiled, graph, (place["function"], place["file"], place["line"]))

    def _make_entry(self, capture: Capture, code: CodeType, slots: list[native.Slot], flags: int, state: str, reason: str, n_graphs: int) -> native.Entry:
        guards = capture.guards()
        tree = lower(guards)
        tag = EntryTag([record(g) for g in guards], self.points, state, capture.changing, n_ops=capture.graph.n_ops)
        entry = native.Entry(code, self.fn, tree, tuple(slots), flags, tag)
        capture.restore_state()
        if config.debug and not tree.check(self.flat_args, self.fn):
            miss = explain_miss(tag.records, tree, self.flat_args, self.fn)
            raise GuardError(f"a new entry of {self.fn.__qualname__} fails its own guards: {miss}")
        if listening():
            emit("guards", frame_id=self.frame_id, guards=[self._renamed(r) for r in tag.records], tree_text=render(guards))
        self.owner.add_entry(entry)
        emit(
            "frame_done",
            **self.place,
            state=state,
            reason=reason,
            code="",
            seconds=time.perf_counter() - self.started,
            n_graphs=n_graphs,
            n_ops=capture.graph.n_ops,
            n_guards=len(guards),
        )
        return entry


def _slots(stack: list[Any]) -> tuple[tuple[str, ...], list[Any]]:
    """Kinds of stack slots, and the values that are passed on."""
    kinds: list[str] = []
    values: list[Any] = []
    for value in stack:
        if value is NULL:
            kinds.append(NULL_SLOT)
        elif isinstance(value, RaisingOffset):
            kinds.append(OFFSET_SLOT)
        elif isinstance(value, PreviousException):
            kinds.append(PREVIOUS_SLOT)
            values.append(value.current)
        else:
            kinds.append(VALUE_SLOT)
            values.append(value)
    return tuple(kinds), values
