"""Exception instances, made or caught by the captured code, and their tracebacks."""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from framejit import _native as native
from framejit.bytecode.instr import Location
from framejit.bytecode.tables import encode_locations
from framejit.guards.sources import AttrSource, static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.containers.unread_items import existing_items
from framejit.values.inspection import is_a
from framejit.values.objects.new_instances import native_class
from framejit.values.objects.user_object import ObjectValue
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame

_LINKS = ("__context__", "__cause__", "__suppress_context__", "__traceback__")


class RaisedAt(NamedTuple):
    """A frame that an exception went through, as a traceback tells of it."""

    file: str
    function: str
    qualified_name: str
    first_line: int
    location: Location


class ExceptionValue(ObjectValue):
    """An instance of an exception class, `args` as Python keeps them.

    `seq` is the step at which the captured program raised it: where the graph breaks if plain Python must see it.
    """

    def __init__(self, cls: type, args: list[Value], obj: Any = None, source: Any = None) -> None:
        super().__init__(cls, obj, source)
        self.args, self.seq = args, -1
        self.places: list[RaisedAt] = []  # the frames it went through, innermost first, as its traceback will say
        self.context: Value = NONE
        # raised where the captured code handled nothing: the context is what its caller handles, if anything
        self.context_of_caller = False
        self.cause: Value = NONE
        self.suppress_context = False

    def c_method(self, frame: Frame, name: str, static: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__init__", "__init_subclass__"):
            if kwargs or self.source is not None:
                raise Unsupported(f"{self.cls.__qualname__}() with keyword arguments, or once more")
            check_plain_exception(self.cls, args)
            self.args = list(args)
            return NONE
        if self.source is not None:
            return super().c_method(frame, name, static, args, kwargs)
        if name == "with_traceback":
            self.set_traceback(args[0])
            return self
        if name == "add_note":
            self.add_note(frame, args[0])
            return NONE
        if name in ("__str__", "__repr__"):
            return ConstantValue(static(make_exception(self.cls, tuple(frame.constants(self.args)))))
        return super().c_method(frame, name, static, args, kwargs)

    def children(self) -> Iterator[Value]:
        yield from self.args
        yield from (self.context, self.cause)
        yield from super().children()

    def getattr(self, frame: Frame, name: str) -> Value:
        if self.source is None:
            match name:
                case "args":
                    return TupleValue(self.args)
                case "__context__":
                    return self.context_in(frame.capture)
                case "__cause__":
                    return self.cause
                case "__suppress_context__":
                    return ConstantValue(self.suppress_context)
                case "__traceback__":
                    return NONE if self.seq < 0 else TracebackValue(self)
                case "value" if issubclass(self.cls, StopIteration) and name not in self.attrs:
                    return self.args[0] if self.args else NONE
                case "message" if issubclass(self.cls, BaseExceptionGroup):
                    return self.args[0]
                case "exceptions" if issubclass(self.cls, BaseExceptionGroup):
                    return TupleValue(list(frame.iterate(self.args[1])))
            filled_in_c = is_a(
                static_lookup(self.cls, name, None), (types.MemberDescriptorType, types.GetSetDescriptorType)
            )
            if filled_in_c and name != "__class__" and name not in self.attrs:
                raise Unsupported(f"attribute {name!r} of {self.describe()}, which its C code fills")
        return super().getattr(frame, name)

    def context_in(self, capture: Capture) -> Value:
        """`__context__`; asks what the caller of the captured function handles only where that matters."""
        if self.context_of_caller:
            self.context, self.context_of_caller = capture.exception_of_caller(), False
        return self.context

    def generic_setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if name not in _LINKS or self.source is not None:
            super().generic_setattr(frame, name, value)
            return
        value = realize(frame, value) if value is not None else None
        if (
            value is None
            or name in ("__context__", "__cause__")
            and not isinstance(value, ExceptionValue)
            and not is_none(value)
        ):
            raise Unsupported(f"setting {name} of {self.describe()} to something it can't be")
        frame.capture.effects.altered(self)
        if name == "__context__":
            self.context, self.context_of_caller = value, False
        elif name == "__cause__":
            self.cause, self.suppress_context = value, True
        elif name == "__suppress_context__":
            if value.python_type() is not bool:
                raise Unsupported("setting __suppress_context__ to something that is no bool")
            self.suppress_context = frame.truth(value)
        else:
            self.set_traceback(value)

    def set_traceback(self, value: Value) -> None:
        has_none = is_none(value) and self.seq < 0  # it was not raised yet
        if not has_none and not (isinstance(value, TracebackValue) and value.exception is self):
            raise Unsupported(f"setting the traceback of {self.describe()}")

    def add_note(self, frame: Frame, note: Value) -> None:
        notes = self.attrs.get("__notes__")
        if not isinstance(notes, ListValue):
            notes = ListValue([])
            super().generic_setattr(frame, "__notes__", notes)
        notes.call_method(frame, "append", [note], {})

    def message(self, frame: Frame) -> Value:
        if len(self.args) == 1:
            return self.args[0]
        return TupleValue(self.args)

    def reconstruct(self, cg: Codegen) -> None:
        self.context_in(cg.capture)
        cg.em.call_object(
            make_exception,
            lambda: (
                cg.em.load_object(self.cls), cg.load(TupleValue(self.args)), cg.em.load_object(tuple(self.places)),
            ),
            3,
        )
        cg.capture.effects.changed(self)  # replay fills in the rest, so that cycles are possible

    def replay(self, cg: Codegen) -> None:
        super().replay(cg)
        if self.source is not None:
            return
        for name, value in (
            ("__context__", self.context),
            ("__cause__", self.cause),
            ("__suppress_context__", ConstantValue(self.suppress_context)),
        ):
            if not value.is_constant() or value.constant():
                cg.load(value)
                cg.load(self)
                cg.em.store_attr(name)


_CHOOSY = (UnicodeEncodeError, UnicodeDecodeError, UnicodeTranslateError, SyntaxError, BaseExceptionGroup)


def check_plain_exception(cls: type, args: list[Value]) -> None:
    """Break where making an exception does more than keeping its arguments."""
    base = native_class(cls)
    if (
        ExceptionGroup in cls.__mro__
        and len(args) == 2
        and args[0].python_type() is str
        and isinstance(args[1], SequenceValue)
    ):
        if args[1].items and all(isinstance(m, ExceptionValue) and issubclass(m.cls, Exception) for m in args[1].items):
            return
    elif not issubclass(base, _CHOOSY) and not (issubclass(base, OSError) and len(args) > 1):
        # the number of an OSError may decide on its class
        return
    raise Unsupported(f"making a {cls.__qualname__}, whose C code looks at its arguments", "FJ113")


def make_exception(cls: type, args: tuple[Any, ...], places: tuple[RaisedAt, ...] = ()) -> Any:
    """A real exception as `cls(*args)` leaves it, without the class's own `__init__`, which the captured code has run.

    `places` are those its traceback names, innermost first.
    """
    base = native_class(cls)
    made = base.__new__(cls, *args)
    base.__init__(made, *args)
    for place in places:
        shown = _frame_of(place)
        made.__traceback__ = types.TracebackType(
            made.__traceback__, shown, shown.f_lasti, place.location.lineno or place.first_line
        )
    return made


def _frame_of(place: RaisedAt) -> types.FrameType:
    """A frame that says it is at a place; it has no variables."""
    code = _frame_of_nothing.__code__
    table = encode_locations([place.location], [len(code.co_code) // 2], place.first_line)
    code = code.replace(
        co_filename=place.file, co_name=place.function, co_qualname=place.qualified_name,
        co_firstlineno=place.first_line, co_linetable=table
    )
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

    def getattr(self, frame: Frame, name: str) -> Value:
        raise Unsupported(f"attribute {name!r} of a traceback")

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.exception)
        cg.em.load_attr("__traceback__")


class PreviousException(Value):
    """The stack slot that PUSH_EXC_INFO saves below the exception it makes `current`; POP_EXCEPT takes it."""

    def __init__(self, current: Value) -> None:
        self.current = current


class RaisingOffset(Value):
    """The bytecode offset some handlers find below the exception; it only serves to set the line when re-raising."""


class NullValue(Value):
    """The NULL that calls keep on the stack."""

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()


@wraps(BaseException, subclasses=True)
def _existing_exception(capture: Capture, obj: BaseException, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    return ExceptionValue(type(obj), existing_items(obj.args, AttrSource(source, "args")), obj, source)
