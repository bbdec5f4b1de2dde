"""Generators made by captured code: their frame is stepped while capturing."""
from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.iterator_values import IteratorValue
from framejit.values.objects.functions.function_values import CallableValue, FunctionValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame, GeneratorFrame


class GeneratorValue(IteratorValue):
    """A generator.  `made_at` is the step that made it: where the graph breaks if plain Python needs the real one."""

    def __init__(self, frame: GeneratorFrame, made_at: int, function: CallableValue) -> None:
        self.frame, self.made_at, self.function = frame, made_at, function
        self.started = self.finished = False
        frame.capture.generators.append(self)

    def close(self) -> None:
        self.frame.close()
        super().close()

    def python_type(self) -> type:
        return types.GeneratorType

    def describe(self) -> str:
        return f"generator {self.frame.code.co_qualname}"

    def children(self) -> Iterator[Value]:
        return iter(())

    def next(self, frame: Frame) -> Value:
        return self.resume(frame, NONE, None)

    def resume(self, frame: Frame, sent: Value, raising: Raised | None) -> Value:
        """Run to the next yield; Exhausted carries the return value in `self.result`."""
        if self.finished:
            self.result = NONE  # only the first StopIteration carries it
            if raising is not None:
                raise Raised(raising.value)
            raise Exhausted
        if self.frame.running:
            raise frame.raised(ValueError, "generator already executing")
        self.frame.caller = frame
        frame.capture.effects.altered(self)
        try:
            if raising is not None and not self.started:
                self.finished = True
                raise Raised(raising.value)
            outcome, value = self.frame.resume_generator(sent if self.started else None, raising)
        except Raised as e:
            self.finished = True
            if issubclass(e.value.cls, StopIteration):  # PEP 479
                wrapped = frame.make_exception(RuntimeError, [ConstantValue("generator raised StopIteration")])
                wrapped.cause = wrapped.context = e.value
                wrapped.suppress_context = True
                raise Raised(wrapped) from None
            raise
        finally:
            self.frame.caller = None
        self.started = True
        if outcome == "yield":
            return value
        self.finished, self.result = True, value
        raise Exhausted

    result: Value = NONE

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("send", "throw"):
            raising = None
            if name == "throw":
                given = [a for a in args[:2] if not (a.is_constant() and a.constant() is None)]
                raising = Raised(frame.exception_from(given[-1]))
            try:
                return self.resume(frame, args[0] if name == "send" else NONE, raising)
            except Exhausted:
                raise self.stop(frame) from None
        if name == "close":
            if self.started and not self.finished:
                try:
                    with frame.catching():
                        self.resume(frame, NONE, Raised(frame.make_exception(GeneratorExit, [])))
                except Exhausted:
                    return self.result if sys.version_info >= (3, 13) else NONE
                except Raised as e:
                    if not issubclass(e.value.cls, GeneratorExit):
                        raise
                    return NONE
                raise frame.raised(RuntimeError, "generator ignored GeneratorExit")
            self.finished = True
            return NONE
        if name == "__del__":
            raise Unsupported("generator.__del__")
        return super().call_method(frame, name, args, kwargs)

    def stop(self, frame: Frame) -> Raised:
        return frame.raised(StopIteration, *([] if is_none(self.result) else [self.result]))

    def reconstruct(self, cg: Codegen) -> None:
        if self.finished:
            if not self.frame.hidden and self.frame.resume is None:
                cg.em.call_object(ended_generator, lambda: self._load_function(cg))
                return
        cg.capture.break_at(self.made_at, Unsupported(f"{self.describe()} leaves captured code", "FJ151"))

    def _load_function(self, cg: Codegen) -> None:
        """A function that makes generators with this one's code and names."""
        if isinstance(self.function, FunctionValue):
            return cg.load(self.function)
        code = self.frame.code
        names = {
            name: code.co_qualname if name == "__qualname__" else code.co_name for name in ("__name__", "__qualname__")
        }
        for name, value in getattr(self.function, "attributes", {}).items():
            if name in names:
                if not value.is_constant():
                    cg.capture.break_at(
                        self.made_at, Unsupported(f"{self.describe()} has a name that was made at run time", "FJ151")
                    )
                names[name] = value.constant()
        template = types.FunctionType(
            code, {}, names["__name__"], None, tuple(types.CellType() for _ in code.co_freevars)
        )
        template.__qualname__ = names["__qualname__"]
        cg.em.load_object(template)


def ended_generator(function: types.FunctionType) -> types.GeneratorType[Any, Any, Any]:
    """A generator of the function that has nothing more to give. Its frame is gone, and with it whatever the generator
    was made with."""
    code = function.__code__
    keywords = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    # a generator expression looks at its argument when it is called, from 3.15 on
    nothing = () if code.co_name == "<genexpr>" else None
    generator: types.GeneratorType[Any, Any, Any] = function(*[nothing] * code.co_argcount, **dict.fromkeys(keywords))
    generator.close()
    return generator
