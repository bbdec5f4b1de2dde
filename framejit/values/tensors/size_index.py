"""Indexing a tensor with sizes that are not assumed: torch's own indexing would ask for their numbers, `select` does
not."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from framejit.values.base import Value
from framejit.values.constant import ConstantValue, SliceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.sym_int import SymIntValue

WHOLE = ConstantValue(slice(None))

if TYPE_CHECKING:
    from framejit.values.context import Frame
    from framejit.values.tensors.tensor import TensorValue


def selected(frame: Frame, tensor: TensorValue, key: Value) -> Value | None:
    """The view of the tensor that an index with sizes in it means, made as torch makes it: one item after the other.

    None where `key` has no sizes, or more than numbers, slices and None: a number beside tensors or lists means
    something else.
    """
    items = key.items if isinstance(key, TupleValue) else [key]
    if not any(isinstance(item, SymIntValue) for item in items) or not all(map(_is_basic, items)):
        return None
    indices = [item for item in items if not _is_none(item)]
    if len(indices) > tensor.fake.dim() or not all(
        _is_within(item, size) for item, size in zip(indices, tensor.fake.shape)
    ):
        return None  # an error that is worded otherwise, or counted from the end
    graph = frame.capture.graph
    result: Value = tensor
    dim = 0
    for item in items:
        if _is_none(item):
            result = graph.call("unsqueeze", [result, ConstantValue(dim)], is_method=True)
        elif isinstance(item, SymIntValue) or (isinstance(item, ConstantValue) and type(item.value) is int):
            result = graph.call("select", [result, ConstantValue(dim), item], is_method=True)
            continue
        else:
            result = graph.call(operator.getitem, [result, TupleValue([WHOLE] * dim + [item])])
        dim += 1
    return result


def _is_basic(item: Value) -> bool:
    return isinstance(item, (SymIntValue, SliceValue)) or (
        isinstance(item, ConstantValue) and type(item.value) in (int, slice, type(None))
    )


def _is_within(item: Value, size: int) -> bool:
    return not isinstance(item, SymIntValue) or bool(item.size >= 0 and item.size < size)


def _is_none(item: Value) -> bool:
    return isinstance(item, ConstantValue) and item.value is None
