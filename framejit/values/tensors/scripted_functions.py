"""Functions compiled by `torch.jit.script`: the Python function that one was made of is inlined, as the compiler saw
it, where the language of TorchScript means the same."""
from __future__ import annotations

import builtins
import math
import types
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.jit._state import _try_get_jit_cached_function

from framejit import _native as native
from framejit.guards.sources import Source, const_source
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import ConstantValue, is_none
from framejit.values.containers.tuples import TupleValue
from framejit.values.objects.functions.function_values import bind
from framejit.values.objects.functions.model_values import ModelFunctionValue, as_model
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import makes, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

_ScriptFunction: Any = torch.jit.ScriptFunction
_MODULES: Final = (torch, torch.nn, torch.nn.functional, torch.special, torch.linalg, math)
_BUILTINS: Final = frozenset("abs bool float int len max min pow range round sum".split())
_SAYS_WHERE_IT_RUNS: Final = frozenset("jit is_scripting is_tracing compiler _dynamo _C ops".split())
_NUMBERS: Final = {"int": int, "float": float, "bool": bool}


class ScriptedFunctionValue(ObjectValue):
    """An existing `torch.jit.ScriptFunction`; nobody changes what it does."""

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        model = _function_behind(self.obj)
        if model is None:
            raise Unsupported(f"{self.describe()}, which is not only the Python that it was made of", "FJ110")
        args, named = deep_realize(frame, args), deep_realize(frame, list(kwargs.values()))
        kwargs = dict(zip(kwargs, named))
        parameters = self.obj.schema.arguments
        by_name = {parameter.name: parameter for parameter in parameters}
        if len(args) > len(parameters) or not set(kwargs) <= set(by_name):
            raise Unsupported(f"{self.describe()} called with other arguments than it has", "FJ112")
        given = [*zip(parameters, args), *((by_name[name], value) for name, value in kwargs.items())]
        if not all(_fits(str(parameter.type), value) for parameter, value in given):
            raise Unsupported(f"{self.describe()} called with arguments that it converts", "FJ112")
        function = ModelFunctionValue(model)
        try:
            with frame.catching():
                result = frame.inline(function, bind(frame, function, args, kwargs))
        except Raised as e:
            raise Unsupported(f"{self.describe()} raises {e.value.cls.__name__}", "FJ110") from None
        [result] = deep_realize(frame, [result])
        if not _is_result(result):
            raise Unsupported(f"{self.describe()}, which returns {result.describe()}", "FJ110")
        return result


def _function_behind(scripted: Any) -> types.FunctionType | None:
    """The Python function, with the globals that it was compiled with, if both mean the same."""
    found = vars(scripted).get("_torchdynamo_inline")
    if type(found) is not types.FunctionType or found.__closure__ or found.__kwdefaults__:
        return None
    compiled = _try_get_jit_cached_function(found)
    if compiled is None or str(compiled.graph) != str(scripted.graph):
        return None  # traced: it does what the function did once
    names = set(found.__code__.co_names)
    if names & _SAYS_WHERE_IT_RUNS or any(type(const) is types.CodeType for const in found.__code__.co_consts):
        return None
    used: dict[str, Any] = {}
    for name in names & found.__globals__.keys():
        used[name] = found.__globals__[name]
        if not any(used[name] is module for module in _MODULES):
            return None
    if any(name not in _BUILTINS for name in (names - used.keys()) & vars(builtins).keys()):
        return None
    return as_model(found, used)


def _fits(kind: str, value: Value) -> bool:
    """Whether a value is what a parameter of this type is declared to take."""
    if kind.startswith("Optional["):
        return is_none(value) or _fits(kind[9:-1], value)
    if kind == "Tensor":
        return isinstance(value, TensorValue) and value.cls in (torch.Tensor, torch.nn.Parameter)
    return kind in _NUMBERS and isinstance(value, ConstantValue) and type(value.value) is _NUMBERS[kind]


def _is_result(value: Value) -> bool:
    if isinstance(value, TupleValue):
        return value.cls is tuple and all(map(_is_result, value.items))
    return isinstance(value, TensorValue) or isinstance(value, ConstantValue)


@wraps(_ScriptFunction)
def _existing(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_ID, obj)
    return ScriptedFunctionValue(type(obj), obj, source)


@makes(_ScriptFunction)
def _made(obj: Any) -> Value:
    return ScriptedFunctionValue(type(obj), obj, const_source(obj))
