"""Where values came from, in words: "`n` is a Python number that came from `x.item()` on line 12"."""
from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

from framejit.bytecode.decode import Instruction, decode
from framejit.events.place import Place
from framejit.guards.sources import ArgSource, BuiltinSource, CellArgSource, ClosureCellSource, ConstSource, GlobalSource, Source, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.bound_descriptor import BoundDescriptor
from framejit.values.constant import ConstantValue
from framejit.values.inspection import module_of
from framejit.values.lazy import LazyValue
from framejit.values.read_number import ReadNumberValue
from framejit.values.scalar import ScalarValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.bytecode.resume_code import ResumeCode
    from framejit.interpreter.capturing import Frame

# How many values each instruction works on, from the top of the stack.
_OPERANDS = {"COMPARE_OP": 2, "BINARY_OP": 2, "BINARY_SUBSCR": 2, "CONTAINS_OP": 2, "STORE_SUBSCR": 3, "FORMAT_WITH_SPEC": 2}
_OPERANDS["CALL_FUNCTION_EX"] = 3 + (sys.version_info >= (3, 14))
_CALLS = {"CALL": 2, "CALL_KW": 3}  # and as many as their argument says
_NAMED = 3  # of more values than this nobody wants to hear


@dataclass
class Origins:
    """For variables that live across graph breaks: the expression whose result they hold, by the code they belong to."""

    places: dict[tuple[int, str], Place] = field(default_factory=dict)
    held: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """What is left on the stack at a break: the variable or expression it came from, by code, instruction and depth."""

    def note(self, frame: Frame, code: CodeType, index: int) -> None:
        """Remember what the variables of a frame at a graph break hold. It broke at instruction `index` of `code`."""
        for name, value in frame.locals.items():
            if name.startswith("__"):
                continue
            place = self.origin(frame, value)
            if place is None:
                self.places.pop((id(code), name), None)
            else:
                self.places[id(code), name] = place

        for depth, value in enumerate(frame.stack):
            value, place = _looked_at(value), self.origin(frame, value)
            name = _variable(frame, value) or (place.source() if place is not None else "")
            self.held[id(code), index, depth] = name or (value.source.name() if value.source is not None else "")

    def origin(self, frame: Frame, value: Value) -> Place | None:
        """The expression that gave `value`, if the program made it since the function was called."""
        value = _looked_at(value)
        if isinstance(value, TensorValue) and value.source is None:
            return value.node.meta.get("place")
        if value.source is None:
            return None
        root = _root(value.source)
        for holder in frame.chain():
            for name, held in holder.locals.items():
                if _looked_at(held) is value or held.source is not None and held.source == root:
                    found = self.of_variable(holder.code, holder.resume, name)
                    if found is not None:
                        return found
        if isinstance(root, ArgSource):  # an argument of a resume function that went to the stack, and is in no variable any more
            outermost = frame.chain()[-1]
            return self.of_variable(outermost.code, outermost.resume, root.arg)
        return None

    def of_variable(self, code: CodeType, resume: ResumeCode | None, name: str) -> Place | None:
        """The same by the name of the variable or argument."""
        if resume is None:
            return self.places.get((id(code), name))
        resume, name = _innermost(resume, name)
        if name.startswith("__stack"):
            arguments = resume.layout.parameters()
            if name not in arguments or arguments.index(name) not in resume.fresh:
                return None
            return place_of(resume.original, decode(resume.original).instructions[max(resume.index - 1, 0)])
        return self.places.get((id(resume.original), name))


def _innermost(resume: ResumeCode, name: str) -> tuple[ResumeCode, str]:
    """An argument that a resume function only hands on, as the inner resume function that takes it knows it."""
    while name.startswith("__inner") and name[7:].isdigit() and resume.inner is not None:
        arguments = resume.inner.__code__.co_varnames
        if int(name[7:]) >= len(arguments):  # the name is another function's
            break
        name, resume = arguments[int(name[7:])], resume.inner._framejit_resume  # type: ignore[attr-defined]
    return resume, name


def of_break(frame: Frame, operands: list[tuple[str, Value]], origins: Origins) -> str:
    """Where the values came from that the broken instruction of `frame` works on."""
    line = frame.instruction.line
    sentences = [s for name, value in operands if (s := _sentence(frame, name, value, origins, line))]
    return "; ".join(list(dict.fromkeys(sentences))[:_NAMED])


def operands(frame: Frame, stack: list[Value]) -> list[tuple[str, Value]]:
    """The values that the current instruction works on, each with the name of a variable that holds it."""
    ins = frame.instruction
    n = _CALLS[ins.name] + int(ins.arg) if ins.name in _CALLS else _OPERANDS.get(ins.name, 1)
    found: list[tuple[str, Value]] = []
    for value in stack[-n:]:
        value = _looked_at(value)
        if isinstance(value, BoundDescriptor):
            value = _looked_at(value.owner)
        found.append((_variable(frame, value), value))
    return found


def in_program_terms(text: str, code: CodeType, resume: ResumeCode | None, origins: Origins) -> str:
    """A reason with the arguments of a resume function called what the program calls these values."""
    return re.sub(r"'(__(?:stack|inner)\d+[^']*)'", lambda m: f"`{of_guard(code, resume, m.group(1), origins)[0]}`", text)


def of_guard(code: CodeType, resume: ResumeCode | None, source_name: str, origins: Origins) -> tuple[str, str]:
    """For a guard on `source_name`: what a person would call the value, and where it came from."""
    match = re.match(r"\w+", source_name)
    if match is None:
        return source_name, ""
    root = match.group()
    if resume is not None:
        resume, inner = _innermost(resume, root)
        source_name, root = source_name.replace(root, inner, 1), inner
    place = origins.of_variable(code, resume, root)
    if place is None and root.startswith("__stack") and root[7:].isdigit() and resume is not None:
        held = origins.held.get((id(resume.original), resume.index - 1, int(root[7:])), "") or "a value computed before"
        return source_name.replace(root, held, 1), ""
    if place is None:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        known = root in (names if resume is None else resume.original.co_varnames[: resume.original.co_argcount])
        return source_name, f"`{root}` is an argument of {code.co_qualname}" if known else ""
    text = place.source()
    where = f"`{text}` on line {place.line}" if text else f"line {place.line}"
    if root.startswith("__"):
        return source_name.replace(root, text or "a result", 1), f"it is the result of {where}"
    return source_name, f"`{root}` came from {where}"


def _sentence(frame: Frame, name: str, value: Value, origins: Origins, line: int | None) -> str:
    kind = _kind(value)
    if kind is None:
        return ""
    place = origins.origin(frame, value)
    if place is not None:
        text = place.source()
        where = "on this line" if place.line == line and place.file == frame.code.co_filename else f"on line {place.line}"
        if place.file != frame.code.co_filename:
            where += f" of {place.file}"
        if not text:
            return ""
        return f"`{name}` is {kind} that came from `{text}` {where}" if name and name != text else f"`{text}` is {kind} computed {where}"
    if value.source is None or isinstance(value, ConstantValue):
        return ""
    path, root = value.source.name(), _root(value.source)
    if "__" in path:
        return ""
    if isinstance(root, (ArgSource, CellArgSource)):
        owner = frame.code.co_qualname if frame.depth == 0 else frame.capture.root.code.co_qualname
        return f"`{name or path}` is {kind}, an argument of {owner}" if path == root.name() else f"`{path}` is {kind}, read from the argument `{root.name()}`"
    if isinstance(root, ClosureCellSource):
        return f"`{path.removeprefix('cell of ')}` is {kind} of the enclosing function"
    if isinstance(root, (GlobalSource, ConstSource)):
        return f"`{path}` is {kind}, a global of {frame.globals.get('__name__', 'the module')}"
    return ""


def _kind(value: Value) -> str | None:
    """What a value is, where saying so helps: data, not functions or modules."""
    if isinstance(value, TensorValue):
        return "a tensor"
    if isinstance(value, ScalarValue | ReadNumberValue) or isinstance(value, ConstantValue) and type(value.value) in (int, float, bool):
        return "a Python number"
    if value.source is None or isinstance(value.source, BuiltinSource):
        return None
    try:
        cls = value.python_type()
    except Unsupported:
        return None
    if static_lookup(cls, "__call__", None) is not None:
        return None
    if module_of(cls) in ("builtins", "types") and cls not in (list, dict, tuple, set, str, bytes):
        return None
    return f"{'an' if cls.__name__[0].lower() in 'aeiou' else 'a'} {cls.__name__}"


def _variable(frame: Frame, value: Value) -> str:
    for name, held in frame.locals.items():
        if _looked_at(held) is value and not name.startswith("__"):
            return name
    return ""


def _looked_at(value: Any) -> Any:
    while isinstance(value, LazyValue) and value.realized is not None:
        value = value.realized
    return value


def _root(source: Source) -> Source:
    while source.base is not None:
        source = source.base
    return source


def place_of(code: CodeType, ins: Instruction) -> Place:
    """The expression an instruction is a part of."""
    return Place(code.co_filename, ins.line or code.co_firstlineno, ins.column, ins.end_line, ins.end_column)
