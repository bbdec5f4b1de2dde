"""The step at the end of a capture, as plain data and back: the frames at a graph break, each by the function whose
code it runs. Another process builds the step, and the resume functions behind it, from its own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import FunctionType
from typing import Any, Final

from framejit import _native as native
from framejit.bytecode.decode import Instruction, decode
from framejit.bytecode.instr import Instr
from framejit.bytecode.original_code import original_code
from framejit.bytecode.resume_code import StackSlot
from framejit.capture.breaks.broken_frame import BrokenFrame
from framejit.capture.breaks.resume_points import ResumePoints
from framejit.capture.breaks.step import build_step
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.late_dataclass import dataclass

_ROOT: Final = -1
"""In the place of a function's number: the function that was captured."""


@dataclass
class Break:
    """Where a capture ended."""

    frames: list[BrokenFrame]
    functions: list[FunctionType | None]
    """For each frame the function that runs in it; None for one that captured code has made."""
    told: dict[str, Any] | None
    """The `graph_break` event, if there was one."""
    on_tensor: bool
    """Whether the graph broke at an operation on a tensor."""
    changing: frozenset[str]
    """Variables holding numbers that differ from call to call."""
    step: native.Dispatcher | None = None
    """What carries on there, once it is built."""


def calling_inner(finished: Instruction, call: Instruction) -> Instruction:
    """The instruction by which a resume function calls the one for the frame below, where it breaks the graph. It
    finishes another call, of the original's, in whose place it stands, and takes other arguments."""
    location = finished.original.location if finished.original is not None else None
    return replace(finished, name=call.name, arg=call.arg, original=Instr(call.name, call.arg, location=location))


def written_break(broken: Break, root: FunctionType, number_of: Callable[[FunctionType], int]) -> dict[str, Any]:
    """The record of a break; `number_of` says by which number a function is found again. Raises NotKept."""
    frames = []
    for frame, function in zip(broken.frames, broken.functions):
        if function is None:
            raise NotKept(f"the graph breaks in {frame.code.co_qualname}, which captured code makes")
        given: Any = function
        if (original_code(function), function.__globals__, given.__builtins__) != (
            frame.code, frame.globals, frame.builtins
        ):
            raise NotKept(f"the graph breaks in {frame.code.co_qualname}, whose function is another now")
        ins = frame.instruction
        call = None if ins is decode(frame.code).instructions[ins.index] else [ins.name, ins.arg]
        frames.append([
            _ROOT if function is root else number_of(function), ins.index, call, [kind.name for kind in frame.stack],
            sorted(frame.bound), list(frame.cells), list(frame.keyword_names), sorted(frame.held),
        ])
    told = None if broken.told is None else {name: v for name, v in broken.told.items() if name != "call_sites"}
    return {
        "frames": frames, "told": told, "on_tensor": broken.on_tensor, "changing": sorted(broken.changing),
    }


def read_step(
    record: dict[str, Any], root: FunctionType, function_of: Callable[[int], Any], points: ResumePoints
) -> native.Dispatcher:
    """The step of a record, in this process. Raises DoesNotFit, and whatever data that is none leads to."""
    frames = []
    for number, index, call, stack, bound, cells, keyword_names, held in record["frames"]:
        function: Any = root if number == _ROOT else function_of(number)
        if type(function) is not FunctionType:
            raise DoesNotFit("what should be a function is none")
        code = original_code(function)
        ins = decode(code).instructions[index]
        if call is not None:
            ins = calling_inner(ins, replace(ins, name=call[0], arg=call[1]))
        kinds = tuple(StackSlot[name] for name in stack)
        frames.append(BrokenFrame(
            code, function.__globals__, function.__builtins__, ins, kinds, frozenset(bound), tuple(cells),
            tuple(keyword_names), frozenset(held),
        ))
    step = build_step(points, frames)
    points.changing.update(record["changing"])
    if record["on_tensor"]:
        points.tensor_steps.add(step)
    return step
