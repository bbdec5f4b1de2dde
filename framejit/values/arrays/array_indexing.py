"""Subscripts of arrays in graphs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit.fakes.elementwise_strides import contiguous
from framejit.signals import Raised
from framejit.values.arrays.array_memory import number_of, torch_dtype
from framejit.values.arrays.constant_arrays import constant_array
from framejit.values.arrays.ndarray import ArrayValue, NumberValue, NumpyValue, refused
from framejit.values.arrays.ufuncs import c_ordered, cast, checked_result, full, number_as, plain_operand
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.read_number import LARGEST_EXACT, ReadNumberValue
from framejit.values.runtime_numbers.size_number import number_at_place
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


class Item:
    """A subscript with a known key, as a step of a view."""

    def __init__(self, key: Any) -> None:
        self.key = key

    def __call__(self, array: Any) -> Any:
        return array[self.key]


def _plain_key(frame: Frame, key: Value) -> Any:
    """The key of a basic subscript: ints, slices that go forward, None and an ellipsis. NotImplemented for any
    other."""
    key = realize(frame, key)
    if isinstance(key, NumberValue) and key.dtype.kind in "ui" and (key.known is not None or key.source is not None):
        return key.plain(frame).constant()
    if isinstance(key, TupleValue):
        found = [_plain_key(frame, part) for part in key.items]
        return NotImplemented if any(part is NotImplemented for part in found) else tuple(found)
    if isinstance(key, NumpyValue | TensorValue) or not key.is_constant():
        return NotImplemented
    plain = key.constant()
    parts = plain if type(plain) is tuple else (plain,)
    for part in parts:
        if type(part) is slice:
            if any(type(bound) not in (int, type(None)) for bound in (part.start, part.stop, part.step)) or (
                part.step is not None and part.step <= 0
            ):
                return NotImplemented
        elif part is not None and part is not Ellipsis and type(part) is not int:
            return NotImplemented
    return plain


def _is_one_element(array: ArrayValue, key: Any) -> bool:
    parts = key if type(key) is tuple else (key,)
    return len(parts) == array.fake.dim() and all(type(part) is int for part in parts)


def item(frame: Frame, array: NumpyValue, key: Value) -> Value:
    """`array[key]`."""
    if not isinstance(array, ArrayValue):
        raise refused(f"a subscript of {array.describe()}")
    key = realize(frame, key)
    if isinstance(key, (SymIntValue, ReadNumberValue)) and key.python_type() is int and array.fake.dim() == 1:
        return _number_at(frame, array, key)
    plain = _plain_key(frame, key)
    if plain is NotImplemented:
        return _gathered(frame, array, key)
    part = frame.capture.graph.call(operator.getitem, [array.tensor, ConstantValue(plain)])
    assert isinstance(part, TensorValue)
    if _is_one_element(array, plain):
        return _copied(frame, part)
    if not all(part.fake.shape):
        raise refused("an empty part of an array")
    if part is array.tensor or part.fake is array.fake:
        raise refused("a subscript that leaves everything as it is")
    return array.view(part, Item(plain))


def _number_at(frame: Frame, array: ArrayValue, place: Value) -> Value:
    """`array[place]` of an array with one dimension and an int that is not assumed."""
    part = _part_at(frame, array, place)
    if part is None or part.fake.dim():
        raise refused(f"a subscript of an array by {place.describe()}")
    return _copied(frame, part)


def _part_at(frame: Frame, array: ArrayValue, key: Value) -> TensorValue | None:
    """What stands under a key with an int that is not assumed; None where that is no view."""
    try:
        with frame.catching():
            part = frame.subscript(array.tensor, key)
    except Raised:  # numpy says it in other words
        return None
    return part if isinstance(part, TensorValue) else None


def _is_open_place(frame: Frame, key: Value) -> bool:
    """Whether a key is one int that is not assumed, or has such beside parts that are known."""
    if isinstance(key, TupleValue):
        parts = [realize(frame, part) for part in key.items]
        others = [part for part in parts if not isinstance(part, SymIntValue)]
        return len(others) < len(parts) and all(_plain_key(frame, part) is not NotImplemented for part in others)
    return isinstance(key, SymIntValue) and not key.is_of_data()


def _copied(frame: Frame, part: TensorValue) -> NumberValue:
    """The number in a part of an array, which does not change with the array."""
    copied = frame.capture.graph.call("clone", [part], is_method=True)
    assert isinstance(copied, TensorValue)
    content = copied.known_result(frame)
    return NumberValue(copied, known=None if content is None else number_of(content))


def _gathered(frame: Frame, array: ArrayValue, key: Value) -> Value:
    """`array[key]` for an array or list of integers: the rows at these places."""
    if isinstance(key, ListValue) and key.cls is list and key.items:
        places = [realize(frame, place) for place in key.items]
        if all(place.is_constant() and type(place.constant()) is int for place in places):
            key = constant_array(frame, np.array([place.constant() for place in places], np.int64))
    if (
        not isinstance(key, ArrayValue)
        or key.fake.dtype not in (torch.int64, torch.int32)
        or not c_ordered(array.fake)
        or not c_ordered(key.fake)
    ):
        raise refused(f"a subscript of an array by {key.describe()}")
    if not array.fake.dim() or not key.fake.dim():
        raise refused("a subscript without dimensions")
    found = frame.capture.graph.call(operator.getitem, [array.tensor, key.tensor])
    assert isinstance(found, TensorValue)
    return ArrayValue(checked_result(frame, found, array.dtype, _row_major(found.fake), "take"))


def _row_major(fake: torch.Tensor) -> tuple[int, ...]:
    return tuple(contiguous(fake.shape))


def set_item(frame: Frame, array: NumpyValue, key: Value, value: Value) -> Value:
    """`array[key] = value`."""
    if not isinstance(array, ArrayValue):
        raise refused(f"a subscript of {array.describe()}")
    plain = _plain_key(frame, key)
    key = realize(frame, key)
    is_mask = isinstance(key, ArrayValue) and key.fake.dtype == torch.bool and key.fake.shape == array.fake.shape
    target = array.tensor
    if plain is NotImplemented and not is_mask:
        place = _part_at(frame, array, key) if _is_open_place(frame, key) else None
        if place is None:
            raise refused(f"writing into an array by {key.describe()}")
        target = place
    changing = _changing_number(frame, value, array.dtype)
    number = plain_operand(value) if changing is None else None
    if plain is not NotImplemented:
        part = frame.capture.graph.call(operator.getitem, [array.tensor, ConstantValue(plain)])
        assert isinstance(part, TensorValue)
        target = part
    if isinstance(value, NumpyValue):
        written = cast(frame, value.tensor, array.dtype)
        if not _fits(written.fake.shape, target.fake.shape) or (is_mask and written.fake.dim()):
            raise refused("writing an array of another shape")
        if isinstance(value, ArrayValue):  # the two may overlap
            copied = frame.capture.graph.call("clone", [written], is_method=True)
            assert isinstance(copied, TensorValue)
            written = copied
    elif changing is not None:
        written = changing
    elif number is not None and not (type(number) is float and array.dtype.kind in "uib"):
        written = full(frame, (), number_as(number, array.dtype), array.dtype)
    else:
        raise refused(f"writing {value.describe()} into an array")
    if is_mask:
        assert isinstance(key, ArrayValue)
        frame.capture.graph.call("masked_fill_", [target, key.tensor, written], is_method=True)
    else:
        frame.capture.graph.call("copy_", [target, written], is_method=True)
    return NONE


def _changing_number(frame: Frame, value: Value, dtype: np.dtype[Any]) -> TensorValue | None:
    """A number that is not assumed, or was read from a tensor, as an element of an array; None for others, for dtypes
    that are not followed, and for what numpy might warn of."""
    wanted, cls = torch_dtype(dtype), value.python_type()
    if cls not in (int, float) or wanted is None or wanted not in (torch.int64, torch.float32, torch.float64):
        return None
    if cls is float and not wanted.is_floating_point:
        return None
    found = None
    if isinstance(value, ReadNumberValue):
        found = value.fitting(wanted) if cls is float or wanted == torch.int64 else None
    elif isinstance(value, (SymIntValue, SymNumberValue)):
        number = number_at_place(frame.capture, value)
        most = LARGEST_EXACT if cls is int else torch.finfo(torch.float32).max
        if number is not None and number.surely("ge", -most) and number.surely("le", most):
            found = number.in_dtype(wanted)
    return found if isinstance(found, TensorValue) else None


def _fits(shape: Any, target: Any) -> bool:
    """Whether a shape is broadcast to another."""
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(target)))
