"""Exception instances, made or caught by the captured code."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.sequence import TupleValue
from framejit.values.user_object import ObjectValue

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame


class ExceptionValue(ObjectValue):
    """An instance of an exception class, `args` as Python keeps them.

    `seq` is the step at which the captured program raised it: where the graph breaks if plain Python must see it.
    """

    def __init__(self, cls: type, args: list[Value], obj: Any = None, source: Any = None) -> None:
        super().__init__(cls, obj, source)
        self.args, self.seq = args, -1
        self.context: Value = NONE
        self.cause: Value = NONE

    def children(self) -> Iterator[Value]:
        yield from self.args
        yield from super().children()

    def getattr(self, tx: "Frame", name: str) -> Value:
        if self.source is None:
            match name:
                case "args":
                    return TupleValue(self.args)
                case "__context__":
                    return self.context
                case "__cause__":
                    return self.cause
                case "__suppress_context__":
                    return ConstantValue(not (self.cause.is_constant() and self.cause.constant() is None))
                case "__traceback__":
                    return NONE
                case "value" if issubclass(self.cls, StopIteration):
                    return self.args[0] if self.args else NONE
                case "with_traceback":
                    from framejit.values.builtin_methods import NativeMethodValue

                    return NativeMethodValue(lambda tx, args, kwargs: self, "with_traceback")
        return super().getattr(tx, name)

    def generic_setattr(self, tx: "Frame", name: str, value: Value | None) -> None:
        if self.source is None and value is not None and name in ("__traceback__", "__context__", "__cause__", "__suppress_context__"):
            if name in ("__context__", "__cause__"):
                setattr(self, name.strip("_"), value)
            return
        super().generic_setattr(tx, name, value)

    def message(self, tx: "Frame") -> Value:
        if len(self.args) == 1:
            return self.args[0]
        return TupleValue(self.args)

    def reconstruct(self, cg: "Codegen") -> None:
        def load() -> None:
            for a in self.args:
                cg.load(a)

        cg.em.call(lambda: cg.em.load_object(self.cls), load, len(self.args))
        if self.attrs:
            cg.capture.effects.changed(self)


class PreviousException(Value):
    """What PUSH_EXC_INFO saves below the exception: the exception handled before, restored by POP_EXCEPT."""

    def __init__(self, previous: Value) -> None:
        self.previous = previous


class NullValue(Value):
    """The NULL that calls keep on the stack."""

    def describe(self) -> str:
        return "NULL"


NULL = NullValue()
