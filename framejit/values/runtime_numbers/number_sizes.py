"""Ints that were read from tensors, where an operation takes them for sizes or bounds of slices: sizes that data
decides.

What is captured with them is one graph, or it is captured again without: where anything breaks the graph, it breaks
where the number is read, and what comes behind knows the sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.may_raise import operation_name
from framejit.values.base import Value
from framejit.values.constant import SliceValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_int import SymIntValue

if TYPE_CHECKING:
    from framejit.values.context import Graph

_OF_SLICES: Final = ("getitem", "setitem")
_OF_SIZES: Final = {
    "zeros": None, "ones": None, "empty": None, "arange": None, "full": 1, "expand": None,
    "new_zeros": None, "new_ones": None, "new_empty": None, "new_full": 2,
}
"""Operations that take sizes, and how many of their first arguments are sizes; None for all."""


def with_sizes(
    graph: Graph, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Sequence[Value]:
    """The arguments of an operation, with sizes that data decides in place of numbers that it takes for such."""
    sizes = graph.metadata.data_sizes
    if sizes is None or not sizes.of_numbers_only or kwargs and any(map(_has_number, kwargs.values())):
        return args
    name = operation_name(target)
    if name in _OF_SLICES and len(args) > 1:
        return [args[0], _in_slices(graph, args[1]), *args[2:]]
    if name not in _OF_SIZES or not any(map(_has_number, args)):
        return args
    count = len(args) if (most := _OF_SIZES[name]) is None else most
    return [*(_as_size(graph, value) for value in args[:count]), *args[count:]]


def _has_number(value: Value) -> bool:
    if isinstance(value, (TupleValue, ListValue)):
        return any(map(_has_number, value.items))
    return isinstance(value, ReadNumberValue)


def _in_slices(graph: Graph, key: Value) -> Value:
    """A key, with sizes for the numbers in its slices."""
    if isinstance(key, TupleValue) and any(isinstance(item, SliceValue) for item in key.items):
        return TupleValue([_in_slices(graph, item) for item in key.items])
    if isinstance(key, SliceValue) and any(map(_has_number, key.parts)):
        return SliceValue([_as_size(graph, part) for part in key.parts])
    return key


def _as_size(graph: Graph, value: Value) -> Value:
    if isinstance(value, (TupleValue, ListValue)) and _has_number(value):
        return type(value)([_as_size(graph, item) for item in value.items])
    if not isinstance(value, ReadNumberValue) or not value.was_read or value.cls is not int:
        return value
    if value.tensor.fake.device.type != "cpu" or _is_negative(graph, value):
        return value
    if value.size is None:
        sizes = graph.metadata.let_data_decide()
        assert sizes is not None
        value.size = sizes.number_in(value.tensor)
    return SymIntValue(value.size)


def _is_negative(graph: Graph, number: ReadNumberValue) -> bool:
    """Whether an input has a number now that is no size. Where it was computed, it is taken for one: if it is none, the
    graph raises, and plain Python goes on."""
    source = number.tensor.node.args[0]
    for value, example in zip(graph.inputs, graph.examples):
        if value.node is source and type(example) in (torch.Tensor, torch.nn.Buffer) and example.numel() == 1:
            return bool(example.item() < 0)
    return False
