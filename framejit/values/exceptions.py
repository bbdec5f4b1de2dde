"""Exception instances, made or caught by the captured code, and their tracebacks."""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.sequence import ListValue, TupleValue
from framejit.values.signals import Unsupported
from framejit.values.user_object import ObjectValue, native_class

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame

Place = tuple[str, str, int]  # file, function, line
_LINKS = ("__context__", "__cause__", "__suppress_context__", "__traceback__")


class ExceptionValue(ObjectValue):
    """An instance of an exception class, `args` as Python keeps them.

    `seq` is the step at which the captured program raised it: where the graph breaks if plain Python must see it.
    """

    def __init__(self, cls: type, args: list[Value], obj: Any = None, source: Any = None) -> None:
        super().__init__(cls, obj, source)
        self.args, self.seq = args, -1
        self.places: list[Place] = []  # the frames it went through, innermost first, as its traceback will say
        self.context: Value = NONE
        self.cause: Value = NONE
        self.suppress_context = False

    def children(self) -> Iterator[Value]:
        yield from self.args
        yield from (self.context, self.cause)
        yield from super().children()

    def getattr(self, tx: Frame, name: str) -> Value:
        if self.source is None:
            match name:
                case "args":
                    return TupleValue(self.args)
                case "__context__":
                    return self.context
                case "__cause__":
                    return self.cause
                case "__suppress_context__":
                    return ConstantValue(self.suppress_context)
                case "__traceback__":
                    return NONE if self.seq < 0 else TracebackValue(self)
                case "value" if issubclass(self.cls, StopIteration):
                    return self.args[0] if self.args else NONE
                case "message" if issubclass(self.cls, BaseExceptionGroup):
                    return self.args[0]
                case "exceptions" if issubclass(self.cls, BaseExceptionGroup):
                    return TupleValue(list(tx.iterate(self.args[1])))
            if isinstance(static_lookup(self.cls, name, None), (types.MemberDescriptorType, types.GetSetDescriptorType)):
                raise Unsupported(f"attribute {name!r} of {self.describe()}, which its C code fills")
        return super().getattr(tx, name)

    def generic_setattr(self, tx: Frame, name: str, value: Value | None) -> None:
        if name not in _LINKS or self.source is not None or value is None:
            super().generic_setattr(tx, name, value)
        elif name == "__context__":
            self.context = value
        elif name == "__cause__":
            self.cause, self.suppress_context = value, True
        elif name == "__suppress_context__":
            self.suppress_context = tx.truth(value)
        else:
            self.set_traceback(value)

    def set_traceback(self, value: Value) -> None:
        if not (isinstance(value, TracebackValue) and value.exception is self):
            raise Unsupported(f"setting the traceback of {self.describe()}")

    def add_note(self, tx: Frame, note: Value) -> None:
        notes = self.attrs.get("__notes__")
        if not isinstance(notes, ListValue):
            notes = ListValue([])
            super().generic_setattr(tx, "__notes__", notes)
        notes.call_method(tx, "append", [note], {})

    def message(self, tx: Frame) -> Value:
        if len(self.args) == 1:
            return self.args[0]
        return TupleValue(self.args)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(make_exception, lambda: (cg.em.load_object(self.cls), cg.load(TupleValue(self.args)), cg.em.load_object(tuple(self.places))), 3)
        cg.capture.effects.changed(self)  # replay fills in the rest, so that cycles are possible

    def replay(self, cg: Codegen) -> None:
        super().replay(cg)
        if self.source is not None:
            return
        for name, value in (("__context__", self.context), ("__cause__", self.cause), ("__suppress_context__", ConstantValue(self.suppress_context))):
            if not value.is_constant() or value.constant():
                cg.load(value)
                cg.load(self)
                cg.em.store_attr(name)


def make_exception(cls: type, args: tuple[Any, ...], places: tuple[Place, ...] = ()) -> Any:
    """What `cls(*args)` leaves, without the class's own `__init__`, which the captured code has run.

    `places` are those its traceback names, innermost first.
    """
    base = native_class(cls)
    made = base.__new__(cls, *args)
    base.__init__(made, *args)
    for file, name, line in places:
        made.__traceback__ = types.TracebackType(made.__traceback__, _frame_of(file, name, line), -1, line)
    return made


def _frame_of(file: str, name: str, line: int) -> types.FrameType:
    """A frame that says it runs function `name` at `line` of `file`; it has no variables."""
    code = _frame_of_nothing.__code__.replace(co_filename=file, co_name=name, co_firstlineno=line)
    frame: types.FrameType = types.FunctionType(code, {"getframe": sys._getframe})()
    return frame


def _frame_of_nothing() -> types.FrameType:
    return getframe()  # type: ignore[name-defined]  # noqa: F821  given by _frame_of


class TracebackValue(Value):
    """The traceback of an exception that was only raised in the capture: it is there, and nothing may look inside."""

    def __init__(self, exception: ExceptionValue) -> None:
        self.exception = exception

    def python_type(self) -> type:
        return types.TracebackType

    def children(self) -> Iterator[Value]:
        return iter((self.exception,))

    def getattr(self, tx: Frame, name: str) -> Value:
        raise Unsupported(f"attribute {name!r} of a traceback")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.exception)
        cg.em.load_attr("__traceback__")


class PreviousException(Value):
    """What PUSH_EXC_INFO saves below the exception it makes `current`; POP_EXCEPT takes it."""

    def __init__(self, current: Value) -> None:
        self.current = current


class RaisingOffset(Value):
    """The bytecode offset some handlers find below the exception; it only serves to set the line when re-raising."""


class NullValue(Value):
    """The NULL that calls keep on the stack."""

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()
