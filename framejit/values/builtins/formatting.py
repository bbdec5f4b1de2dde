"""Text of values: str, repr, format, ascii."""
from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.arrays.ndarray import NumberValue
from framejit.values.base import Value, realize
from framejit.values.complaints import wrong_answer
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.sets import SetValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import is_a
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.enum_members import EnumMemberValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.runtime_numbers.number_texts import text_of_number
from framejit.values.runtime_numbers.read_number import read_item
from framejit.values.runtime_numbers.texts_of_data import text_of_data
from framejit.values.shown_objects import text_by_cpython, writes_own_text
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _escaped(text: str) -> str:
    """What ascii() makes of the text that repr() gives."""
    return text if str.isascii(text) else str.encode(text, "ascii", "backslashreplace").decode("ascii")


def _number_in(frame: Frame, tensor: TensorValue) -> Value:
    """What torch formats of a tensor: the number in one without dimensions."""
    if tensor.cls is not torch.Tensor or tensor.fake.dim() or frame.capture.overrides.modes:
        return tensor
    return read_item(frame, tensor) or tensor


def text_of(frame: Frame, function: Any, args: list[Value]) -> Value:
    """str(), repr() or format() of a value."""
    if function is format and args and isinstance(args[0], TensorValue):
        args = [_number_in(frame, args[0]), *args[1:]]
    if function is format and len(args) == 2 and isinstance(args[0], NumberValue) and args[0].dtype.kind in "iuf":
        spec = realize(frame, args[1])
        if spec.is_constant() and spec.constant():  # else it is written in numpy's way
            args = [args[0].plain(frame), spec]
    of_number = text_of_number(function, args)
    if of_number is not None:
        return of_number
    value = args[0] if args else ConstantValue("")
    if (
        isinstance(value, ObjectValue)
        or isinstance(value, ClassValue | EnumMemberValue) and not value.is_constant()
        or isinstance(value, SequenceValue) and writes_own_text(value.python_type())
    ):
        cls = value.python_type()
        method = {"str": "__str__", "repr": "__repr__", "ascii": "__repr__", "format": "__format__"}[function.__name__]
        found = static_lookup(cls, method)
        if method == "__str__" and found is object.__str__:
            method, found = "__repr__", static_lookup(cls, "__repr__")
        if found is object.__format__ and len(args) == 2 and args[1].constant() == "":
            return text_of(frame, str, [value])
        if is_a(found, types.FunctionType) or issubclass(cls, BaseException):
            given = args[1:]
            text = realize(
                frame,
                frame.call(value.getattr(frame, method), given, {})
                if isinstance(value, SequenceValue)
                else value.call_method(frame, method, given, {}),
            )
            if not issubclass(text.python_type(), str):
                raise wrong_answer(
                    frame, cls, method, function, text,
                    f"{method} returned non-string (type {text.python_type().__name__})",
                )
            return fold(frame, _escaped, [text], {}) if function is ascii else text
    if isinstance(value, (SequenceValue, DictValue, SetValue)):
        is_whole = function in (str, repr) or function is format and (len(args) < 2 or args[1].constant() == "")
        with_numbers = text_of_data(frame, repr, value) if is_whole else None
        return text_by_cpython(frame, text_of, function, args, {}) if with_numbers is None else with_numbers
    try:
        return fold(frame, function, args, {})
    except Unsupported:
        raise Unsupported(
            f"{function.__name__}() of {value.describe()}", "FJ125", "format it outside the compiled function"
        ) from None


for _function in (repr, str, format, ascii):
    HANDLERS[_function] = functools.partial(
        lambda f, frame, a, k: fold(frame, f, a, k) if k else text_of(frame, f, a), _function
    )
