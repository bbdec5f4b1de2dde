"""Where values came from, in words: "`n` is a Python number that came from `x.item()` on line 12"."""
from __future__ import annotations

import re
import sys
from dataclasses import field
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from framejit.bytecode.decode import Instruction
from framejit.bytecode.resume_code import Site, StackKinds, StackSlot
from framejit.events.place import Place
from framejit.guards.plain_text import module_of
from framejit.guards.sources import (
    ArgSource,
    BuiltinSource,
    CellArgSource,
    ClosureCellSource,
    ConstSource,
    GlobalSource,
    Source,
    static_lookup,
)
from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.lazy import LazyValue
from framejit.values.objects.exception_values import NULL
from framejit.values.objects.functions.bound_descriptor import BoundDescriptor
from framejit.values.objects.functions.function_values import CellValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.bytecode.resume_code import ResumeCode
    from framejit.interpreter.capturing import Frame

# How many values each instruction works on, from the top of the stack.
_OPERANDS = {
    "COMPARE_OP": 2, "BINARY_OP": 2, "BINARY_SUBSCR": 2, "CONTAINS_OP": 2, "STORE_SUBSCR": 3, "FORMAT_WITH_SPEC": 2,
}
_OPERANDS["CALL_FUNCTION_EX"] = 3 + (sys.version_info >= (3, 14))
_CALLS = {"CALL": 2, "CALL_KW": 3}  # and as many as their argument says
_NAMED = 3  # of more values than this nobody wants to hear


@dataclass(frozen=True)
class Argument:
    """An argument of the function that was called, or what `path` reads from it."""

    path: str
    name: str
    function: str

    @staticmethod
    def of(source: Source, function: str) -> Argument:
        return Argument(source.name(), _root(source).name(), function)


Origin = Place | Argument | None
"""The expression that made a value, or the argument it is; None where nothing is known."""


@dataclass
class Known:
    """The program's name for the content of a variable or a stack slot where a frame is resumed, and the places it came
    from."""

    name: str
    origins: dict[Origin, None] = field(default_factory=dict)
    """Several where the program gets there by several ways."""


@dataclass
class Origins:
    """For what lives across graph breaks: what the program calls it, and where it came from, at each place where a
    frame is resumed."""

    known: dict[tuple[Site, str], Known] = field(default_factory=dict)
    """By the name of the resume function's argument."""

    def note(
        self, frame: Frame, stack: list[Value], ins: Instruction, here: Place, sites: list[tuple[Site, StackKinds]]
    ) -> None:
        """Remember what a frame holds at a graph break, for the sites where it may be resumed, each with the kinds of
        its stack slots.

        It broke at `ins`, part of the expression `here`, with these values on the stack.
        """
        held = {name: value for name, value in frame.locals.items() if value is not NULL and not name.startswith("__")}
        held.update(
            (name, cell.contents)
            for name, cell in frame.cells.items()
            if isinstance(cell, CellValue) and cell.contents is not None
        )
        if ins.name == "STORE_FAST":
            held[ins.arg] = stack[-1]
        for site, kinds in sites:
            for name, value in held.items():
                self._add(site, name, name, self.origins(frame, value))
            for depth, kind in enumerate(kinds):
                slot = f"__stack{depth}"
                if kind == StackSlot.RESULT:
                    self._add(site, slot, here.source() or "a result", (here,))
                elif StackSlot.PREVIOUS in kinds[max(depth - 1, 0) : depth + 1]:
                    self._add(site, slot, "the exception that is handled", ())
                elif kind == StackSlot.VALUE and depth < len(stack):
                    self._add(
                        site, slot, self._name_in_stack(frame, stack[depth], here), self.origins(frame, stack[depth])
                    )

    def _add(self, site: Site, argument: str, name: str, origins: tuple[Origin, ...]) -> None:
        known = self.known.setdefault((site, argument), Known(name))
        known.name = name
        known.origins.update(dict.fromkeys(origins or (None,)))

    def _name_in_stack(self, frame: Frame, value: Value, here: Place) -> str:
        value = _looked_at(value)
        name = _variable(frame, value)
        place = next((o for o in self.origins(frame, value) if isinstance(o, Place)), None)
        if not name and place is not None:
            name = place.source()
        if not name and value.source is not None:
            name = value.source.name()
            known = self.of_argument(frame.chain()[-1].resume, _root(value.source).name())
            if known is not None:
                name = name.replace(_root(value.source).name(), known.name, 1)
        if not name and isinstance(value, ConstantValue):
            name = getattr(value.value, "__qualname__", "") or repr(value.value)
        return name if name and not name.startswith("__") else f"a value computed before, used on line {here.line}"

    def origins(self, frame: Frame, value: Value) -> tuple[Origin, ...]:
        """The expressions that may have given `value`, or the argument it is; nothing where neither is known."""
        value = _looked_at(value)
        if isinstance(value, TensorValue) and value.source is None:
            place = value.node.meta.get("place")
            return () if place is None else (place,)
        if value.source is None:
            return ()
        root = _root(value.source)
        if not isinstance(root, ArgSource | CellArgSource):
            return ()
        outermost = frame.chain()[-1]
        if outermost.resume is None:
            return (Argument.of(value.source, outermost.code.co_qualname),)
        known = self.of_argument(outermost.resume, root.arg)
        return () if known is None else tuple(known.origins)

    def of_argument(self, resume: ResumeCode | None, name: str) -> Known | None:
        """The program's name for an argument of a resume function, and where its value came from; None where that is
        not known."""
        if resume is None:
            return None
        resume, name = _innermost(resume, name)
        return self.known.get((resume.site, name))


def _innermost(resume: ResumeCode, name: str) -> tuple[ResumeCode, str]:
    """An argument that a resume function only hands on, as the inner resume function that takes it knows it."""
    while name.startswith("__inner") and name[7:].isdigit() and resume.inner is not None:
        name, resume = resume.inner.__code__.co_varnames[int(name[7:])], resume.inner._framejit_resume  # type: ignore[attr-defined]
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
    return re.sub(
        r"'(__(?:stack|inner)\d+[^']*)'", lambda m: f"`{of_guard(code, resume, m.group(1), origins)[0]}`", text
    )


_BEGINS: Final = r"(?<![.'\"\w])"
"""Where a name begins in a text about values, and no attribute or key."""


def of_guard(code: CodeType, resume: ResumeCode | None, source_name: str, origins: Origins) -> tuple[str, str]:
    """For a guard on `source_name`: what a person would call the value, and where it came from."""
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = re.findall(rf"{_BEGINS}[^\W\d]\w*", source_name.removeprefix("cell of "))
    if not names:
        return source_name, ""
    root = next((name for name in names if name in parameters), names[0])  # behind functions of it
    if resume is None:
        is_argument = root in parameters
        return source_name, f"`{root}` is an argument of {code.co_qualname}" if is_argument else ""
    inner, argument = _innermost(resume, root)
    known = origins.known.get((inner.site, argument))
    name = (
        known.name if known is not None else "a value computed before" if argument.startswith("__stack") else argument
    )
    is_cell = argument in inner.layout.cells and source_name.startswith(f"{root}.cell_contents")
    replaced = f"{root}.cell_contents" if is_cell else root
    read = re.sub(rf"{_BEGINS}{re.escape(replaced)}\b", lambda match: name, source_name, count=1)
    if known is None:
        return read, ""
    where = _where(tuple(known.origins), inner.original.co_filename)
    if where.startswith(f"`{name}` "):  # it has no name but the expression itself
        return read, f"it is the result of {where}"
    of_inner = f" in {inner.original.co_qualname}" if inner is not resume else ""
    if where:
        unsure = None in known.origins
        return read, f"`{name}`{of_inner} {'may have come' if unsure else 'came'} from {where}"
    arguments = [origin for origin in known.origins if isinstance(origin, Argument)]
    if arguments and None not in known.origins:
        return read, f"`{name}`{of_inner} is {_argument(name, arguments[0])}"
    return read, f"`{name}` is a variable of {inner.original.co_qualname}" if of_inner else ""


def _where(origins: tuple[Origin, ...], file: str, line: int | None = None) -> str:
    """The places among the origins of a value, for somebody who looks at `line` of `file`."""
    said = []
    for place in origins:
        if isinstance(place, Place):
            text, here = place.source(), place.file == file
            found = (
                "on this line"
                if here and place.line == line
                else f"on line {place.line}" + ("" if here else f" of {place.file}")
            )
            said.append(f"`{text}` {found}" if text else found.removeprefix("on "))
    return " or ".join(dict.fromkeys(said[:_NAMED])) + (" or others" if len(said) > _NAMED else "")


def _argument(name: str, argument: Argument) -> str:
    if argument.path == argument.name:
        return (
            f"an argument of {argument.function}"
            if argument.name == name
            else f"the argument `{argument.name}` of {argument.function}"
        )
    return f"`{argument.path}`, read from an argument of {argument.function}"


def _sentence(frame: Frame, name: str, value: Value, origins: Origins, line: int | None) -> str:
    kind = _kind(value)
    if kind is None:
        return ""
    found = origins.origins(frame, value)
    where = _where(found, frame.code.co_filename, line)
    if where:
        text = next(place.source() for place in found if isinstance(place, Place))
        if not text:
            return ""
        if name and name != text:
            return f"`{name}` is {kind} that {'may have come' if None in found else 'came'} from {where}"
        return f"`{text}` is {kind} computed {where.removeprefix(f'`{text}` ')}"
    if value.source is None or isinstance(value, ConstantValue):
        return ""
    path, root = value.source.name(), _root(value.source)
    argument = next((origin for origin in found if isinstance(origin, Argument)), None)
    if argument is not None and None not in found:
        if argument.path == argument.name:
            return f"`{name or path}` is {kind}, an argument of {argument.function}"
        return f"`{argument.path}` is {kind}, read from the argument `{argument.name}`"
    if "__" in path:
        return ""
    if isinstance(root, ClosureCellSource):
        return f"`{path.removeprefix('cell of ')}` is {kind} of the enclosing function"
    if isinstance(root, (GlobalSource, ConstSource)):
        return f"`{path}` is {kind}, a global of {frame.globals.get('__name__', 'the module')}"
    return ""


def _kind(value: Value) -> str | None:
    """What a value is, where saying so helps: data, not functions or modules."""
    if isinstance(value, TensorValue):
        return "a tensor"
    if (
        isinstance(value, SymNumberValue | ReadNumberValue)
        or isinstance(value, ConstantValue)
        and type(value.value) in (int, float, bool)
    ):
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
