"""What shapes are broadcast to, where torch says it as a number of its own: with open sizes it stays an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from framejit.models.shapes import broadcast_shape
from framejit.values.base import Value, deep_realize
from framejit.values.constant import is_none
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS
from framejit.values.objects.functions.function_values import bind
from framejit.values.objects.functions.model_values import ModelFunctionValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MODEL = ModelFunctionValue(broadcast_shape)  # type: ignore[arg-type]


def _register(function: Any) -> None:
    def handler(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        args = deep_realize(frame, args)
        shapes: list[Value] = [arg if isinstance(arg, SequenceValue) else TupleValue([arg]) for arg in args]
        if not kwargs and any(map(_has_open_size, args)) and all(map(_is_shape, shapes)):
            shape = frame.inline(_MODEL, bind(frame, _MODEL, shapes, {}))
            if not is_none(shape):
                return shape
        return fold(frame, function, args, kwargs)

    HANDLERS[function] = handler


def _has_open_size(value: Value) -> bool:
    return value.symbolic or any(map(_has_open_size, value.children()))


def _is_shape(value: Value) -> bool:
    return all(size.python_type() is int for size in value.children())


for _function in (torch.broadcast_shapes, torch._C._infer_size):
    _register(_function)
