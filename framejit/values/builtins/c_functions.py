"""Functions and methods written in C, as values; what each does stands in the `builtin_*` modules."""

from __future__ import annotations

import collections
import itertools
import math
import types
import typing
import warnings
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import Source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.models import call_model, is_modelled
from framejit.values.builtins.signatures import checked
from framejit.values.constant import NONE
from framejit.values.containers.iterator_tools import make_tool
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.objects.classes import BuiltinNewValue, ClassValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

# Functions of these modules only compute from their arguments, so they run on constants as they are.
PURE_MODULES = ("math", "math.integer", "_operator", "operator", "cmath", "_struct", "binascii", "_bisect", "itertools", "_string", "unicodedata")
PURE_BUILTINS: tuple[Any, ...] = (
    abs,
    round,
    divmod,
    pow,
    chr,
    ord,
    bin,
    hex,
    oct,
    ascii,
    format,
    len,
    sum,
    min,
    max,
    hash,
    repr,
    callable,
    math.prod,
    typing.get_origin,
    typing.get_args,
)


OUTPUT_HINT = "write it outside the compiled function, or put it behind `if not torch.compiler.is_compiling():`"
NUMPY_HINT = "use torch operations in place of numpy's"
C_HINT = "call it before the function, or if its result depends on its arguments alone, in a helper marked @framejit.assume_constant"


class BuiltinValue(Value):
    """A function written in C, not torch's."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        self.function, self.source = function, source

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"

    def constant(self) -> Any:
        return self.function

    def proxy(self) -> Any:
        raise Unsupported(f"{self.describe()} as an argument of a tensor operation", "FJ120")

    def getattr(self, tx: Frame, name: str) -> Value:
        from framejit.values.wrap import from_python

        try:
            return from_python(getattr(self.function, name))
        except AttributeError as e:
            raise tx.raised(AttributeError, str(e)) from None

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function = self.function
        args, kwargs = [realize(tx, a) for a in args], {k: realize(tx, v) for k, v in kwargs.items()}
        try:
            handler = HANDLERS.get(function)
        except TypeError:
            handler = None
        if handler is not None:
            args, kwargs = checked(tx, function, args, kwargs)
            return handler(tx, args, kwargs)
        if is_modelled(function):
            args, kwargs = checked(tx, function, args, kwargs)
            return call_model(tx, function, args, kwargs)
        owner = getattr(function, "__self__", None)
        if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            if function.__objclass__ not in args[0].python_type().__mro__:
                raise Unsupported(f"{self.describe()} of {args[0].describe()}, to which it does not apply")
            if not isinstance(args[0], TensorValue):  # torch checks what its own methods are given
                args, kwargs = checked(tx, function, args, kwargs)
            return _unbound(tx, function, args, kwargs)
        if isinstance(owner, types.GetSetDescriptorType) and function.__name__ == "__get__" and args and isinstance(args[0], TensorValue):
            return _read_by_descriptor(tx, owner, args[0])
        if (
            isinstance(function, types.BuiltinMethodType)
            and isinstance(owner, type)
            and function.__name__ == "fromkeys"
            and issubclass(owner, dict)
        ):
            return _from_keys(tx, owner, *args, **kwargs)
        if (
            isinstance(function, types.BuiltinMethodType)
            and isinstance(owner, type)
            and owner in (dict, collections.OrderedDict, str, bytes, int, float, itertools.chain)
        ):
            return _class_method(tx, owner, function.__name__, args, kwargs)
        if function is object.__new__ or getattr(function, "__name__", "") == "__new__":
            return BuiltinNewValue(owner).call(tx, args, kwargs)
        if getattr(function, "__module__", None) in PURE_MODULES or function in PURE_BUILTINS:
            return fold(tx, function, args, kwargs)
        if function is print or function is warnings.warn:
            raise Unsupported(f"{self.describe()} writes a message, which no graph can do: one ends before it, the next begins after it", "FJ126", OUTPUT_HINT)
        if str(getattr(function, "__module__", None)).startswith("numpy"):
            raise Unsupported(f"{self.describe()} works on numpy arrays, which are no part of a graph", "FJ105", NUMPY_HINT)
        raise Unsupported(f"{self.describe()} is written in C and framejit does not know what it does", "FJ110", C_HINT)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.function)


def _read_by_descriptor(tx: Frame, descriptor: types.GetSetDescriptorType, tensor: TensorValue) -> Value:
    """`torch.Tensor.shape.__get__(tensor)`."""
    from framejit.values.tensors.overrides import attribute_of_override

    found = attribute_of_override(tx, tensor, descriptor.__name__)
    return tensor.torch_getattr(tx, descriptor.__name__) if found is None else found


def _unbound(tx: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`dict.get(d, key)`: a method taken from its class."""
    from framejit.values.builtins.c_methods import BuiltinMethodValue

    if getattr(function, "__objclass__", None) is dict and issubclass(args[0].python_type(), collections.OrderedDict):
        raise Unsupported(f"dict.{function.__name__}() of an OrderedDict, which keeps its order elsewhere")
    if isinstance(args[0], TensorValue) and function.__objclass__ is torch._C.TensorBase:
        return args[0].torch_method(tx, function.__name__, args[1:], kwargs)
    if isinstance(args[0], ObjectValue):
        return BuiltinMethodValue(args[0], function.__name__, function).call(tx, args[1:], kwargs)
    return args[0].call_method(tx, function.__name__, args[1:], kwargs)


def _from_keys(tx: Frame, cls: type, iterable: Value, value: Value = NONE) -> Value:
    """`cls.fromkeys(iterable, value)`: the class is called, and what it gives is filled."""
    made = tx.call(ClassValue(cls), [], {})
    for key in tx.drain(tx.get_iter(iterable)):
        tx.call_special(made, "__setitem__", [key, value], "does not support item assignment")
    return made


def _class_method(tx: Frame, owner: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name == "from_iterable":
        return make_tool(tx, itertools.chain, list(tx.iterate(args[0])), {})
    return fold(tx, getattr(owner, name), args, kwargs)
