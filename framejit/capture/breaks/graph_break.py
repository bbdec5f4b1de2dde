"""The end of a capture at a graph break: it is told, and the rest of the program becomes a step and resume
functions."""

from __future__ import annotations

from types import CodeType
from typing import Any

from framejit import _native as native
from framejit.bytecode.decode import Instruction, decode
from framejit.bytecode.resume_code import StackKinds, StackSlot
from framejit.capture.breaks.broken_frame import BrokenFrame
from framejit.capture.breaks.kept_step import Break, calling_inner
from framejit.capture.breaks.step import build_step
from framejit.capture.capture import Broken, Capture
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.replacement.entry_assembly import codegen, compiled_entry, plain_entry
from framejit.capture.standing_aside import HOOKS_SEE_EFFECTS, hooks_would_see_effects
from framejit.errors import GraphBreakError
from framejit.events import emit
from framejit.interpreter.handlers.variables import NULL_FIRST
from framejit.interpreter.provenance import in_program_terms, of_break, place_of
from framejit.signals import SkipFrame, Unsupported
from framejit.values.base import Value
from framejit.values.objects.exception_values import NULL, ExceptionValue, PreviousException, RaisingOffset
from framejit.values.objects.functions.bound_descriptor import BoundDescriptor
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue

TENSOR_OPERATIONS = frozenset((*(f"FJ10{i}" for i in range(1, 8)), "FJ162", "FJ163"))
"""Codes of breaks at an operation on a tensor, which then runs outside graphs."""
RAISES, STEPS_LOOP = "FJ161", "FJ150"


def finish_at_break(compilation: FrameCompilation, capture: Capture, broken: Broken) -> native.Entry | None:
    """An entry that runs what was captured and leaves through a tail call to the step that carries out the broken
    instruction."""
    points, reason, chain = compilation.points, broken.reason, list(reversed(broken.frame.chain()))
    _check_handled_exceptions(capture, chain, reason)
    capture.check_modes()
    capture.check_generators()
    if hooks_would_see_effects(capture):
        return plain_entry(compilation, capture, HOOKS_SEE_EFFECTS)
    capture.break_before_final()
    told = _report_break(compilation, capture, broken)
    changing = set[str]()
    frames, args, dying = [], list[Value](), list[tuple[BrokenFrame, str, Value]]()
    cg = codegen(compilation, capture, broken.frame.instruction.line)
    for frame in chain:
        kinds, slots = _slots(frame.stack)
        bound = frozenset(n for n, v in frame.locals.items() if v is not NULL)
        changing.update(
            n
            for n, v in frame.locals.items()
            if isinstance(cg.resolved(v), SymNumberValue | ReadNumberValue) and not n.startswith("__")
        )
        code, instruction = _original_place(frame)
        if frame is chain[-1] and _calls_inner(frame):
            instruction = calling_inner(instruction, frame.instruction)
        broken_frame = BrokenFrame(
            code, frame.globals, frame.builtins, instruction, kinds, bound, tuple(frame.cells), frame.keyword_names
        )
        frames.append(broken_frame)
        sites = broken_frame.resumed_at(is_innermost=frame is chain[-1])
        compilation.origins.note(frame, _called_for_real(frame.stack), instruction, place_of(code, instruction), sites)
        layout = broken_frame.layout_before()
        args += slots
        args += [frame.locals[name] for name in layout.variables]
        args += [frame.cells[name] for name in layout.cells]
        dying += [
            (broken_frame, name, frame.cells[name] if name in frame.cells else frame.locals[name])
            for name in broken_frame.not_read_again()
        ]

    points.changing.update(changing)
    functions = [frame.function for frame in chain]
    at_break = Break(frames, functions, told, reason.code in TENSOR_OPERATIONS, frozenset(changing))

    def step(held: list[bool]) -> native.Dispatcher:
        for broken_frame in frames:
            broken_frame.held = frozenset(
                name for (owner, name, _), is_held in zip(dying, held) if owner is broken_frame and is_held
            )
        found = build_step(points, frames)
        if at_break.on_tensor:
            points.tensor_steps.add(found)
        at_break.step = found
        return found

    cg.finish_tail_call(step, args, [value for _, _, value in dying])
    return compiled_entry(compilation, capture, cg, "compiled in parts", reason.reason, at_break)


def _original_place(frame: Any) -> tuple[CodeType, Instruction]:
    """Code and instruction of a frame; for a resume function, those of the code it was made from.

    A resume function is a prologue and a copy of that code, so that breaks in it lead to the same resume
    functions as breaks in the original: a loop comes back to where it was.
    """
    code, index = frame.origin
    if index < 0:
        raise SkipFrame("a graph break before the resume point", "FJ206")
    return code, decode(code).instructions[index]


def _calls_inner(frame: Any) -> bool:
    """Whether a resume function is about to call the one for the frame below."""
    resume = frame.resume
    return resume is not None and resume.inner is not None and frame.pc < resume.indices.index(0)


def _check_handled_exceptions(capture: Capture, chain: list[Any], reason: Unsupported) -> None:
    """An exception in flight that was raised in the capture must be raised for real: break where it was raised.

    Also one that existed before: only raising it gives it the traceback that handlers rely on.
    """
    for frame in chain:
        for exc in [*frame.handled, *frame.stack]:
            if isinstance(exc, ExceptionValue) and exc.seq >= 0:
                capture.break_at(exc.seq, Unsupported(f"raises {exc.cls.__name__}, and {reason.reason}", RAISES))


def _report_break(compilation: FrameCompilation, capture: Capture, broken: Broken) -> dict[str, Any] | None:
    """Tell of a break, if it is one that a user could mend; what was told, of the frame's number aside."""
    frame, reason = broken.frame, broken.reason
    ins = frame.instruction
    capture.frame = frame
    stack = capture.user_stack()
    capture.frame = None
    reason.reason = in_program_terms(
        reason.reason, compilation.fn.__code__, compilation.resume, compilation.origins
    )
    # the program raises here, or goes on in its own loop
    if reason.code in (RAISES, STEPS_LOOP):
        return None
    told = {
        "function": frame.name,
        "file": frame.code.co_filename,
        "line": ins.line,
        "column": ins.column,
        "end_line": ins.end_line,
        "end_column": ins.end_column,
        "reason": reason.reason,
        "provenance": of_break(frame, reason.operands or [], compilation.origins),
        "code": reason.code,
        "hint": reason.hint,
        "user_stack": stack,
        "in_graph_ops": capture.graph.n_ops,
        "call_sites": [(place_of(code, ins), code) for code, ins in map(_original_place, frame.chain())],
    }
    emit("graph_break", frame_id=compilation.frame_id, **told)
    if compilation.options.fullgraph:
        raise GraphBreakError(
            reason.reason,
            function=frame.name,
            file=frame.code.co_filename,
            line=ins.line or 0,
            code=reason.code,
            hint=reason.hint or "",
            user_stack=stack[:-1],
        )
    return told


def _slots(stack: list[Any]) -> tuple[StackKinds, list[Any]]:
    """Kinds of stack slots, and the values that are passed on."""
    kinds: list[StackSlot] = []
    values: list[Any] = []
    for value in _called_for_real(stack):
        if value is NULL:
            kinds.append(StackSlot.NULL)
        elif isinstance(value, RaisingOffset):
            kinds.append(StackSlot.OFFSET)
        elif isinstance(value, PreviousException):
            kinds.append(StackSlot.PREVIOUS)
            values.append(value.current)
        else:
            kinds.append(StackSlot.VALUE)
            values.append(value)
    return tuple(kinds), values


def _called_for_real(stack: list[Any]) -> list[Any]:
    """The stack with what plain Python has there for methods that are about to be called."""
    found = list(stack)
    for i, value in enumerate(stack):
        parts = value.called_parts() if isinstance(value, BoundDescriptor) else None
        if parts is not None:
            null = i - 1 if NULL_FIRST else i
            assert stack[i - 1 if NULL_FIRST else i + 1] is NULL
            found[null : null + 2] = parts
    return found
