"""Functions and methods written in C, as values; what each does stands in the `builtin_*` modules."""

from __future__ import annotations

import collections
import itertools
import math
import sys
import types
import typing
import warnings
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.guards.sources import AttrSource, Source, static_lookup
from framejit.models.model_registry import is_modelled
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.iterator_tools import ChainIterator
from framejit.values.constant import NONE
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sets import SetValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import BUILTIN_TYPES, is_a
from framejit.values.objects.classes import BuiltinNewValue, ClassValue
from framejit.values.objects.functions.c_function import CFunctionValue
from framejit.values.objects.functions.c_methods import BuiltinMethodValue
from framejit.values.objects.functions.model_values import call_model
from framejit.values.objects.functions.signatures import checked
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.overrides import attribute_of_override
from framejit.values.tensors.tensor import TensorMethodValue, TensorValue
from framejit.values.wrap import makes, wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame

# Functions of these modules only compute from their arguments, so they run on constants as they are.
PURE_MODULES = (
    "math", "math.integer", "_operator", "operator", "cmath", "_struct", "binascii", "_bisect", "itertools",
    "_string", "unicodedata",
)
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
    sys.intern,
    math.prod,
    typing.get_origin,
    typing.get_args,
)


OUTPUT_HINT = "write it outside the compiled function, or put it behind `if not torch.compiler.is_compiling():`"
NUMPY_HINT = "use torch operations in place of numpy's"
C_HINT = (
    "call it before the function, or if its result depends on its arguments alone, in a helper marked "
    "@framejit.assume_constant"
)


class BuiltinValue(CFunctionValue):
    """A function written in C, not torch's."""

    def describe(self) -> str:
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"

    def proxy(self) -> Any:
        raise Unsupported(f"{self.describe()} as an argument of a tensor operation", "FJ120")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        function = self.function
        args, kwargs = [realize(frame, a) for a in args], {k: realize(frame, v) for k, v in kwargs.items()}
        try:
            handler = HANDLERS.get(function)
        except TypeError:
            handler = None
        if handler is not None:
            args, kwargs = checked(frame, function, args, kwargs)
            made = handler(frame, args, kwargs)
            if made is not None:
                return made
        if is_modelled(function):
            args, kwargs = checked(frame, function, args, kwargs)
            return call_model(frame, function, args, kwargs)
        owner = getattr(function, "__self__", None)
        if is_a(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            if function.__objclass__ not in args[0].python_type().__mro__:
                raise Unsupported(f"{self.describe()} of {args[0].describe()}, to which it does not apply")
            if not isinstance(args[0], TensorValue):  # torch checks what its own methods are given
                args, kwargs = checked(frame, function, args, kwargs)
            return _unbound(frame, function, args, kwargs)
        if (
            isinstance(owner, types.GetSetDescriptorType)
            and function.__name__ == "__get__"
            and args
            and isinstance(args[0], TensorValue)
        ):
            return _read_by_descriptor(frame, owner, args[0])
        if (
            is_a(function, types.BuiltinMethodType)
            and isinstance(owner, type)
            and function.__name__ == "fromkeys"
            and issubclass(owner, dict)
        ):
            return _from_keys(frame, owner, *args, **kwargs)
        if (
            is_a(function, types.BuiltinMethodType)
            and isinstance(owner, type)
            and owner in (dict, collections.OrderedDict, str, bytes, int, float, itertools.chain)
        ):
            return _class_method(frame, owner, function.__name__, args, kwargs)
        if function is object.__new__ or getattr(function, "__name__", "") == "__new__":
            return BuiltinNewValue(owner).call(frame, args, kwargs)
        if getattr(function, "__module__", None) in PURE_MODULES or function in PURE_BUILTINS:
            return fold(frame, function, args, kwargs)
        if function is print or function is warnings.warn:
            raise Unsupported(
                f"{self.describe()} writes a message, which no graph can do: one ends before it, the next begins after "
                "it",
                "FJ126",
                OUTPUT_HINT,
            )
        if str(getattr(function, "__module__", None)).startswith("numpy"):
            raise Unsupported(
                f"{self.describe()} works on numpy arrays, which are no part of a graph", "FJ105", NUMPY_HINT
            )
        raise Unsupported(f"{self.describe()} is written in C and framejit does not know what it does", "FJ110", C_HINT)


def _read_by_descriptor(frame: Frame, descriptor: types.GetSetDescriptorType, tensor: TensorValue) -> Value:
    """`torch.Tensor.shape.__get__(tensor)`."""
    found = attribute_of_override(frame, tensor, descriptor.__name__)
    return tensor.torch_getattr(frame, descriptor.__name__) if found is None else found


def _unbound(frame: Frame, function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`dict.get(d, key)`: a method taken from its class."""
    if getattr(function, "__objclass__", None) is dict and issubclass(args[0].python_type(), collections.OrderedDict):
        raise Unsupported(f"dict.{function.__name__}() of an OrderedDict, which keeps its order elsewhere")
    if isinstance(args[0], TensorValue) and function.__objclass__ is torch._C.TensorBase:
        return args[0].torch_method(frame, function.__name__, args[1:], kwargs)
    if isinstance(args[0], ObjectValue | ClassValue):
        return BuiltinMethodValue(args[0], function.__name__, function).call(frame, args[1:], kwargs)
    return args[0].call_method(frame, function.__name__, args[1:], kwargs)


def _from_keys(frame: Frame, cls: type, iterable: Value, value: Value = NONE) -> Value:
    """`cls.fromkeys(iterable, value)`: the class is called, and what it gives is filled."""
    made, table = frame.call(ClassValue(cls), [], {}), realize(frame, iterable)
    if (
        isinstance(table, (DictValue, SetValue))
        and table.cls in (dict, set, frozenset)
        and isinstance(made, DictValue)
        and made.cls is dict
        and not made.items
    ):
        made.take_keys(frame, list(table.real_iterator(frame, "keys", False)), value)
        return made
    for key in frame.drain(frame.get_iter(table)):
        frame.call_special(made, "__setitem__", [key, value], "does not support item assignment")
    return made


def _class_method(frame: Frame, owner: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name == "from_iterable":
        return ChainIterator(list(frame.iterate(args[0])))
    return fold(frame, getattr(owner, name), args, kwargs)


@wraps(*BUILTIN_TYPES, subclasses=True)
def _existing_builtin(capture: Capture, obj: Any, source: Source) -> Value:
    owner = getattr(obj, "__self__", None)
    if (
        not _is_bound(obj, owner)
        or is_a(owner, (types.ModuleType, type))
        or not is_a(obj, (types.BuiltinMethodType, types.MethodWrapperType))
    ):
        capture.add_guard(source, native.C_ID, obj)
        return BuiltinValue(obj, source)
    capture.add_guard(source, native.C_TYPE, type(obj))
    capture.add_guard(AttrSource(source, "__name__"), native.C_EQUALS, obj.__name__)
    value = wrap(capture, owner, AttrSource(source, "__self__"))
    return (
        TensorMethodValue(value, obj.__name__)
        if isinstance(value, TensorValue)
        else BuiltinMethodValue(value, obj.__name__)
    )


def _is_bound(obj: Any, owner: Any) -> bool:
    """Whether a C function is a method of `owner`; pybind11's functions keep a record of their own in its place."""
    return owner is not None and static_lookup(type(owner), obj.__name__, None) is not None


makes(*BUILTIN_TYPES, subclasses=True)(BuiltinValue)
