"""`x[i]` with a tensor without dimensions, or a number read from one, as the index: the graph takes the element out. So
it does with `x[i : i + 4]`, a slice whose length is known though its ends are numbers read from tensors, as of a queue
with a pointer in a buffer.

Torch's own indexing would read the number. The graph copies what stands there (`tensors/copies.py`), and where the
element leaves captured code, it is taken once more, as a view. Where the number is out of range, or a slice goes beyond
an end, the graph raises, and plain Python goes on, and raises or cuts off what the program does.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch

from framejit.fakes.data_sizes import has_data_sizes
from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize
from framejit.values.constant import NONE, ConstantValue, SliceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.copies import Copy
from framejit.values.tensors.size_index import WHOLE
from framejit.values.tensors.tensor import METHODS, TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_REASON: Final = "a view of the element that data decides"
_HINT: Final = "copy what was taken out (`x[i].clone()`), or use torch.index_select"
_SELECTING: Final = (torch.int64, torch.int32, torch.int16, torch.int8)
"""What torch indexes with as with a number; uint8 and bool are masks."""


class _Position(NamedTuple):
    """Where a key has a number of data: a tensor with the number, the dimension that it is for, and how many elements
    are taken from there on, up to the second of `ends`; None for one, whose dimension goes."""

    number: TensorValue
    dim: int
    length: Any
    ends: tuple[ReadNumberValue, ReadNumberValue] | None = None


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
    taken = TakenElement(frame, tensor, key, [position.number for position in positions])
    result = tensor if rest is None else graph.call(operator.getitem, [tensor, rest])
    assert isinstance(result, TensorValue)
    lengths = {position.dim: position.length for position in positions}
    if any(result.fake.shape[dim] < (length or 1) for dim, length in lengths.items()):
        return None
    sizes = [(dim, lengths.get(dim, size)) for dim, size in enumerate(result.fake.shape)]
    with graph.metadata.faking():
        copied = torch.empty([size for _, size in sizes if size is not None])
    if list(copied.stride()) != [result.fake.stride(dim) for dim, size in sizes if size is not None]:
        return None
    for position in positions:
        _check_ends(frame, position, result.fake.shape[position.dim])
    for position in reversed(positions):
        result = graph.call(operator.getitem, [result, _at(frame, [position])])
        if position.length is None:
            result = graph.call("select", [result, ConstantValue(position.dim), ConstantValue(0)], is_method=True)
    assert isinstance(result, TensorValue)
    taken.fake, result.copy_of = result.fake, taken
    graph.copies.append(taken)
    return result


def set_element(frame: Frame, tensor: TensorValue, key: Value, given: Value) -> Value | None:
    """`tensor[key] = given`; None where no number of data is in the key, or it is not followed."""
    found = _positions(frame, tensor, key)
    if found is None or not _lie_together(found[1]):
        return None
    rest, positions = found
    first, length = positions[0].dim, positions[0].length
    graph = frame.capture.graph
    target = tensor if rest is None else graph.call(operator.getitem, [tensor, rest])
    assert isinstance(target, TensorValue)
    if length is not None and target.fake.shape[first] < length:
        return None
    takes_floats = tensor.fake.dtype in (torch.float32, torch.float64)
    if isinstance(given, ReadNumberValue) and given.cls is float and takes_floats:
        given = given.in_dtype(tensor.fake.dtype)
    if isinstance(given, TensorValue):
        shape = [*target.fake.shape]
        shape[first : first + len(positions)] = [] if length is None else [length]
        extra = given.fake.dim() - len(shape)
        if given.fake.device != tensor.fake.device or given.cls not in _PLAIN:
            return None
        if given.fake._has_symbolic_sizes_strides and (length is None or has_data_sizes(given.fake)):
            return None
        if extra > 0 and any(size != 1 for size in given.fake.shape[:extra]):
            return None
        if length is not None and _shares_memory(given, tensor):
            return None  # which may overlap, for which torch raises
        if given.fake.is_complex() and not tensor.fake.is_complex():
            return None  # which warns
        value: Value = given
        if given.fake.dtype != tensor.fake.dtype:
            value = graph.call("to", [value, ConstantValue(tensor.fake.dtype)], is_method=True)
        elif given.fake.untyped_storage()._cdata == tensor.fake.untyped_storage()._cdata:
            value = graph.call("clone", [value], is_method=True)
        if extra > 0:
            value = graph.call("reshape", [value, from_python(tuple(given.fake.shape[extra:]))], is_method=True)
        given = graph.call("expand", [value, from_python(tuple(shape))], is_method=True)
        if length is None:
            given = graph.call("unsqueeze", [given, ConstantValue(first)], is_method=True)
    elif not isinstance(given, ConstantValue) or type(given.value) not in (int, float, bool):
        return None
    _check_ends(frame, positions[0], target.fake.shape[first])
    graph.call(operator.setitem, [target, _at(frame, positions), given])
    return NONE


def _lie_together(positions: list[_Position]) -> bool:
    """Whether one key takes what stands at several positions: a slice alone, or elements of dimensions in a row."""
    in_a_row = all(position.dim == positions[0].dim + n for n, position in enumerate(positions))
    return in_a_row and (len(positions) == 1 or all(position.length is None for position in positions))


_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def _shares_memory(given: TensorValue, tensor: TensorValue) -> bool:
    """Whether a tensor lies in the memory of another one, or would if the graph had not copied it."""
    storage = tensor.fake.untyped_storage()._cdata
    return given.fake.untyped_storage()._cdata == storage or given.copy_of is not None and storage in given.copy_of.of


def _at(frame: Frame, positions: list[_Position]) -> Value:
    """The key that takes what stands at positions that lie together; one dimension stays in their place."""
    return TupleValue([WHOLE] * positions[0].dim + [_places(frame, position) for position in positions])


def _places(frame: Frame, position: _Position) -> Value:
    graph = frame.capture.graph
    places: Value = position.number
    if position.number.fake.dtype != torch.int64:
        places = graph.call("to", [places, ConstantValue(torch.int64)], is_method=True)
    if position.length is None:
        return graph.call("reshape", [places, ConstantValue((1,))], is_method=True)
    cpu: dict[str, Value] = {"device": ConstantValue(torch.device("cpu"))}  # whatever the program's default is
    return graph.call(operator.add, [places, graph.call(torch.arange, [from_python(position.length)], cpu)])


def _positions(frame: Frame, tensor: TensorValue, key: Value) -> tuple[Value | None, list[_Position]] | None:
    """The key with all of each dimension in the place of numbers of data (None if that is all), and where these are, by
    the dimensions of what that key gives. None for keys that are not followed."""
    items = key.items if isinstance(key, TupleValue) else [key]
    if not any(map(_is_of_data, items)) or not _can_be_taken_from(frame, tensor):
        return None
    if not all(_is_of_data(item) or _is_basic(item) for item in items):
        return None
    given = [item for item in items if not _is_none(item) and not _is_ellipsis(item)]
    if len(given) > tensor.fake.dim() or sum(map(_is_ellipsis, items)) > 1:
        return None
    dim, positions = 0, list[_Position]()
    for item in items:
        if _is_ellipsis(item):
            dim += tensor.fake.dim() - len(given)
        elif _is_of_data(item):
            positions.append(_position(item, dim))
            dim += 1
        elif not isinstance(item, ConstantValue) or type(item.value) is not int:
            dim += 1
    rest = [WHOLE if _is_of_data(item) else item for item in items]
    return (None if all(item is WHOLE for item in rest) else TupleValue(rest)), positions


def _check_ends(frame: Frame, position: _Position, size: int) -> None:
    """Have the graph assert that a slice lies within its dimension: a number below 0 would count from the end, one that
    is too large would cut the slice off, and what can't be written as a whole must not be begun."""
    if position.ends is None:
        return
    start, stop = position.ends
    if 0 <= start.bounds[0] and stop.bounds[1] <= size:
        return
    graph = frame.capture.graph
    begins = graph.call(torch.ge, [start.tensor, ConstantValue(0)])
    start.check(graph.call(torch.logical_and, [begins, graph.call(torch.le, [stop.tensor, ConstantValue(size)])]))


def _position(item: Value, dim: int) -> _Position:
    if isinstance(item, SliceValue):
        start, stop, _ = item.parts
        assert isinstance(start, ReadNumberValue) and isinstance(stop, ReadNumberValue)
        return _Position(start.tensor, dim, _length(item), (start, stop))
    tensor = item.tensor if isinstance(item, ReadNumberValue) else item
    assert isinstance(tensor, TensorValue)
    return _Position(tensor, dim, None)


def _length(part: SliceValue) -> Any:
    """How many elements a slice has whose ends are that far apart, a size, whatever data says; None for other
    slices."""
    start, stop, step = part.parts
    if not isinstance(start, ReadNumberValue) or not isinstance(stop, ReadNumberValue):
        return None
    if not isinstance(step, ConstantValue) or step.value not in (None, 1) or not _is_number(start):
        return None
    distance = stop.distance_from(start)
    return distance if distance is not None and distance >= 0 else None


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


def _is_of_data(item: Value) -> bool:
    return _length(item) is not None if isinstance(item, SliceValue) else _is_number(item)


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
