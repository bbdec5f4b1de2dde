"""`x[i]` with a tensor without dimensions, or a number read from one, as the index: the graph takes the element out.

Torch's own indexing would read the number. The graph copies what stands there (`tensors/copies.py`), and where the
element leaves captured code, it is taken once more, as a view. Where the number is out of range the graph raises, and
plain Python goes on, and raises what the program does.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Final

import torch

from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.sequence import TupleValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.copies import Copy
from framejit.values.tensors.size_index import WHOLE
from framejit.values.tensors.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_REASON: Final = "a view of the element that data decides"
_HINT: Final = "copy what was taken out (`x[i].clone()`), or use torch.index_select"
_SELECTING: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
"""What torch indexes with as with a number; uint8 and bool are masks."""


class TakenElement(Copy):
    """A copy of `base[key]`, made for that view, which can be had again where it leaves captured code."""

    def __init__(self, frame: Frame, base: TensorValue, key: Value, indices: list[TensorValue]) -> None:
        of = {tensor.fake.untyped_storage()._cdata for tensor in (base, *indices)}
        super().__init__(frame.capture, frame.seq, Unsupported(_REASON, "FJ101", _HINT), of)
        self.base, self.key = base, key
        self.fake: torch.Tensor | None = None

    def hand_out(self, cg: Codegen, tensor: TensorValue) -> None:
        if self.is_stale or tensor.fake is not self.fake or self.base.fake.requires_grad:
            self.refuse()
        cg.em.call_object(operator.getitem, lambda: [cg.load(self.base), cg.load(self.key)], 2)


def _get(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 2 or kwargs or not isinstance(args[0], TensorValue):
        return None
    return element(frame, args[0], *deep_realize(frame, args[1:]))


def _set(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 3 or kwargs or not isinstance(args[0], TensorValue):
        return None
    return set_element(frame, args[0], *deep_realize(frame, args[1:]))


def element(frame: Frame, tensor: TensorValue, key: Value) -> Value | None:
    """`tensor[key]`; None where no number of data is in the key, or the copy would have other strides than the view."""
    found = _positions(frame, tensor, key)
    if found is None:
        return None
    rest, positions = found
    graph = frame.capture.graph
    indices = [value.tensor if isinstance(value, ReadNumberValue) else value for value, _ in positions]
    taken = TakenElement(frame, tensor, key, indices)
    result = tensor if rest is None else graph.call(operator.getitem, [tensor, rest])
    assert isinstance(result, TensorValue)
    dims = [dim for _, dim in positions]
    if any(result.fake.shape[dim] == 0 for dim in dims):
        return None
    strides = [stride for dim, stride in enumerate(result.fake.stride()) if dim not in dims]
    with graph.metadata.faking():
        copied = torch.empty([size for dim, size in enumerate(result.fake.shape) if dim not in dims])
    if list(copied.stride()) != strides:
        return None
    for index, dim in zip(reversed(indices), reversed(dims)):
        result = graph.call(operator.getitem, [result, _at(frame, index, dim)])
        result = graph.call("select", [result, ConstantValue(dim), ConstantValue(0)], is_method=True)
    assert isinstance(result, TensorValue)
    taken.fake, result.copy_of = result.fake, taken
    graph.copies.append(taken)
    return result


def set_element(frame: Frame, tensor: TensorValue, key: Value, given: Value) -> Value | None:
    """`tensor[key] = given`; None where no number of data is in the key, or it is not followed."""
    found = _positions(frame, tensor, key)
    if found is None or len(found[1]) != 1:
        return None
    rest, [(position, dim)] = found
    graph = frame.capture.graph
    target = tensor if rest is None else graph.call(operator.getitem, [tensor, rest])
    assert isinstance(target, TensorValue)
    index = position.tensor if isinstance(position, ReadNumberValue) else position
    takes_floats = tensor.fake.dtype in (torch.float32, torch.float64)
    if isinstance(given, ReadNumberValue) and given.cls is float and takes_floats:
        given = given.in_dtype(tensor.fake.dtype)
    if isinstance(given, TensorValue):
        shape = [size for d, size in enumerate(target.fake.shape) if d != dim]
        extra = given.fake.dim() - len(shape)
        if given.fake.device != tensor.fake.device or given.cls not in _PLAIN or given.fake._has_symbolic_sizes_strides:
            return None
        if extra > 0 and any(size != 1 for size in given.fake.shape[:extra]):
            return None
        if given.fake.is_complex() and not tensor.fake.is_complex():
            return None  # which warns
        value: Value = given
        if given.fake.dtype != tensor.fake.dtype:
            value = graph.call("to", [value, ConstantValue(tensor.fake.dtype)], is_method=True)
        elif given.fake.untyped_storage()._cdata == tensor.fake.untyped_storage()._cdata:
            value = graph.call("clone", [value], is_method=True)
        if extra > 0:
            value = graph.call("reshape", [value, ConstantValue(tuple(given.fake.shape[extra:]))], is_method=True)
        value = graph.call("expand", [value, ConstantValue(tuple(shape))], is_method=True)
        given = graph.call("unsqueeze", [value, ConstantValue(dim)], is_method=True)
    elif not isinstance(given, ConstantValue) or type(given.value) not in (int, float, bool):
        return None
    graph.call(operator.setitem, [target, _at(frame, index, dim), given])
    return NONE


_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _at(frame: Frame, index: TensorValue, dim: int) -> Value:
    """The key that takes one element along a dimension, which stays."""
    graph = frame.capture.graph
    position: Value = index
    if index.fake.dtype != torch.int64:
        position = graph.call("to", [position, ConstantValue(torch.int64)], is_method=True)
    position = graph.call("reshape", [position, ConstantValue((1,))], is_method=True)
    return TupleValue([WHOLE] * dim + [position])


def _positions(
    frame: Frame, tensor: TensorValue, key: Value
) -> tuple[Value | None, list[tuple[TensorValue | ReadNumberValue, int]]] | None:
    """The key with all of each dimension in the place of numbers of data (None if that is all), and these numbers, each
    with the dimension that it is for in what that key gives. None for keys that are not followed."""
    items = key.items if isinstance(key, TupleValue) else [key]
    if not any(_is_number(item) for item in items) or not _can_be_taken_from(frame, tensor):
        return None
    if not all(_is_number(item) or _is_basic(item) for item in items):
        return None
    given = [item for item in items if not _is_none(item) and not _is_ellipsis(item)]
    if len(given) > tensor.fake.dim() or sum(map(_is_ellipsis, items)) > 1:
        return None
    dim, positions = 0, list[tuple[TensorValue | ReadNumberValue, int]]()
    for item in items:
        if _is_ellipsis(item):
            dim += tensor.fake.dim() - len(given)
        elif isinstance(item, (TensorValue, ReadNumberValue)):
            positions.append((item, dim))
            dim += 1
        elif not isinstance(item, ConstantValue) or type(item.value) is not int:
            dim += 1
    rest = [WHOLE if _is_number(item) else item for item in items]
    return (None if all(item is WHOLE for item in rest) else TupleValue(rest)), positions


def _can_be_taken_from(frame: Frame, tensor: TensorValue) -> bool:
    fake = tensor.fake
    return (
        tensor.cls in _PLAIN
        and fake.device.type == "cpu"
        and fake.layout == torch.strided
        and not fake._has_symbolic_sizes_strides
        and not fake.is_inference()
        and not torch.is_inference_mode_enabled()
        and not frame.capture.transforms
    )


def _is_number(item: Value) -> bool:
    if isinstance(item, ReadNumberValue):
        return item.cls is int and item.tensor.fake.device.type == "cpu"
    if not isinstance(item, TensorValue) or item.cls not in _PLAIN:
        return False
    fake = item.fake
    known = getattr(fake, "constant", None) is not None
    return not known and not fake.dim() and fake.dtype in _SELECTING and fake.device.type == "cpu"


def _is_basic(item: Value) -> bool:
    return isinstance(item, ConstantValue) and type(item.value) in (int, slice, type(None), type(...))


def _is_none(item: Value) -> bool:
    return isinstance(item, ConstantValue) and item.value is None


def _is_ellipsis(item: Value) -> bool:
    return isinstance(item, ConstantValue) and item.value is ...


METHODS["__getitem__"] = _get
METHODS["__setitem__"] = _set
