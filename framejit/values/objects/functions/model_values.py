"""Values of the Python functions and classes that stand for C code (`framejit.models`), and how they are called."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any

import framejit.models
from framejit.models import (  # noqa: F401  register models
    arrays,
    comparing,
    devices,
    folds,
    heaps,
    itertools_iterators,
    log_levels,
    operator_functions,
    paths,
    tensor_groups,
)
from framejit.models.model_registry import ITERATORS, MODELS, NEED_ALL_ITEMS, REALS
from framejit.signals import Exhausted, Raised, Unsupported
from framejit.values.base import Value
from framejit.values.containers.iterator_values import IteratorValue
from framejit.values.containers.lists import ListValue
from framejit.values.handlers import Handler, looks_up_handler
from framejit.values.objects.functions.function_values import CallableValue, CellValue, bind
from framejit.values.objects.user_object import ObjectValue
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame
_PACKAGE = framejit.models.__name__


def is_model_namespace(namespace: dict[str, Any]) -> bool:
    """Whether these are the globals of a module of models."""
    return namespace.get("__package__") == _PACKAGE


def as_model(fn: FunctionType, namespace: dict[str, Any]) -> FunctionType:
    """A Python function as the model of what was compiled from it, with these globals."""
    known = {**namespace, "__package__": _PACKAGE, "__name__": fn.__module__}
    return FunctionType(fn.__code__, known, fn.__name__, fn.__defaults__)


class ModelFunctionValue(CallableValue):
    """A function of `framejit.models`: nobody changes it, so that nothing about it is guarded."""

    def __init__(self, fn: FunctionType) -> None:
        self.fn = fn
        self.code, self.globals = fn.__code__, fn.__globals__

    def describe(self) -> str:
        return f"function {self.fn.__qualname__}"

    def constant(self) -> Any:
        return self.fn

    def defaults(self, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        return [from_python(d) for d in self.fn.__defaults__ or ()], {
            k: from_python(d) for k, d in (self.fn.__kwdefaults__ or {}).items()
        }

    def closure(self, frame: Frame) -> list[CellValue]:
        return []

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.fn)


def model_global(namespace: dict[str, Any], name: str) -> Value:
    """A global variable, as code of a model sees it."""
    return from_python(namespace[name] if name in namespace else getattr(builtins, name))


def call_model(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Run what stands for the C function, method or iterator class; the arguments are known to fit."""
    model = MODELS.get(function)
    if model is not None:
        if function in NEED_ALL_ITEMS and args and isinstance(args[0], ListValue):
            args[0].refuse_if_open(frame, function.__qualname__)
        fn = ModelFunctionValue(model)
        return frame.inline(fn, bind(frame, fn, args, kwargs))
    return make_model_iterator(frame, REALS.get(function, function), args, kwargs)


@looks_up_handler
def _model_of_python(function: FunctionType) -> Handler | None:
    """Functions written in Python have models where these are simpler: those of loggers, which look into a cache."""
    if function not in MODELS:
        return None
    return lambda frame, args, kwargs: call_model(frame, function, args, kwargs)


def make_model_iterator(frame: Frame, kind: type, args: list[Value], kwargs: dict[str, Value]) -> ModelIterator:
    cls: Any = ITERATORS[kind]
    state = ObjectValue(cls)
    init = ModelFunctionValue(cls.__init__)
    frame.inline(init, bind(frame, init, [state, *args], kwargs))
    return ModelIterator(kind, cls, state, frame.seq)


class ModelIterator(IteratorValue):
    """An iterator of a C class, stepped by its model; to the program it is of the C class.

    `made_at` is the step that made it: where the graph breaks if plain Python needs the real one and it can't be
    rebuilt.
    """

    def __init__(self, kind: type, cls: Any, state: ObjectValue, made_at: int) -> None:
        self.kind, self.cls, self.state, self.made_at = kind, cls, state, made_at
        self._step = ModelFunctionValue(cls.__next__)
        self._stepped = False

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter([self._field(name) for name in self.cls.fields])

    def _field(self, name: str) -> Value:
        found = self.state.attrs[name]
        assert found is not None
        return found

    def copy(self, frame: Frame) -> ModelIterator:
        """Another one in the same state, what the state holds being shared."""
        state = ObjectValue(self.cls)
        state.attrs.update(self.state.attrs)
        return ModelIterator(self.kind, self.cls, state, frame.seq)

    def next(self, frame: Frame) -> Value:
        self._stepped = True
        try:
            with frame.catching():
                return frame.inline(self._step, bind(frame, self._step, [self.state], {}))
        except Raised as e:
            if issubclass(e.value.cls, StopIteration):
                raise Exhausted from None
            raise

    def reconstruct(self, cg: Codegen) -> None:
        if not getattr(self.cls, "resumable", True) and (self._stepped or not hasattr(self.cls, "rebuild")):
            cg.capture.break_at(
                self.made_at, Unsupported(f"a half consumed {self.kind.__name__} leaves captured code", "FJ151")
            )
        cg.em.call_object(
            self.cls.rebuild, lambda: [cg.load(self._field(name)) for name in self.cls.fields], len(self.cls.fields)
        )


@wraps(FunctionType, first=True)
def _existing_model(capture: Capture, obj: FunctionType, source: Source) -> Value | None:
    return _made_model(obj)


@makes(FunctionType, first=True)
def _made_model(obj: FunctionType) -> Value | None:
    return ModelFunctionValue(obj) if is_model_namespace(obj.__globals__) else None
