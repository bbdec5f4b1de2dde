"""Functions of numpy that are given numbers which are known: numpy's own answer is taken."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit.fakes.dropped_warnings import without_warnings
from framejit.signals import NotConstant
from framejit.values.arrays.array_memory import NUMBERS
from framejit.values.arrays.constant_arrays import constant_array
from framejit.values.arrays.ndarray import ArrayValue, NumberValue, refused
from framejit.values.arrays.ufuncs import constant_number
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.sequence import SequenceValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

# They look at nothing but their arguments.
_NAMES: Final = """
    all allclose amax amin any arange argmax argmin argsort around array_equal average bartlett bincount blackman
    broadcast_shapes ceil clip convolve corrcoef cov cross cumprod cumsum diff digitize dot ediff1d eye floor gcd
    geomspace gradient hamming hanning histogram identity indices inner interp isclose isfinite isinf isnan isscalar
    kaiser kron lcm linspace logspace max mean median min ndim outer percentile poly polyfit polyval prod ptp quantile
    repeat roots round searchsorted shape size sort std sum trace trapezoid tri unique unravel_index vander var
""".split()
KNOWN_BY_NUMBERS: Final = {
    *filter(None, (getattr(np, name, None) for name in _NAMES)),
    *(found for found in vars(np).values() if isinstance(found, np.ufunc) and found.nout == 1),
}
OF_ARRAYS: Final = frozenset(
    filter(None, (getattr(np, name, None) for name in """
        append column_stack delete dstack hstack insert pad resize roll rot90 setdiff1d tril triu union1d vstack
    """.split()))
)
"""Those that make new arrays of arrays and are known of no others than such as hold known numbers."""
_MOST_ITEMS: Final = 1 << 12


def of_known_numbers(frame: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function of numpy of numbers, lists and tuples of them, if it looks at nothing else and warns of
    nothing."""
    if function not in KNOWN_BY_NUMBERS or {"like", "out"} & set(kwargs):
        return None
    if any(isinstance(value, ArrayValue) or _changes(value) for value in (*args, *kwargs.values())):
        return None
    known = _all_known(_known, frame, args, kwargs)
    found = None if known is None else _quietly(function, *known)
    return None if found is None else _value(frame, found)


def _changes(value: Value) -> bool:
    """Whether floats of a list or tuple are not assumed, as those of a history: each call has others."""
    items = value.items if isinstance(value, SequenceValue) else []
    return any(isinstance(item, SymNumberValue) and item.python_type() is float or _changes(item) for item in items)


def of_known_arrays(frame: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """The result of a function of numpy of arrays, too, that captured code has made of known numbers."""
    if function not in OF_ARRAYS:
        return None
    known = _all_known(_known_array, frame, args, kwargs)
    found = None if known is None else _quietly(function, *known)
    if known is None or not isinstance(found, np.ndarray):
        return None
    return None if any(np.may_share_memory(found, value) for value in known[0]) else _value(frame, found)


def _all_known(
    known: Callable[[Frame, Value], Any], frame: Frame, args: Sequence[Value], kwargs: dict[str, Value]
) -> tuple[list[Any], dict[str, Any]] | None:
    """What arguments are known to be; None where one is not."""
    try:
        return [known(frame, value) for value in args], {name: known(frame, value) for name, value in kwargs.items()}
    except NotConstant:
        return None


def _known_array(frame: Frame, value: Value) -> Any:
    if isinstance(value, ArrayValue):
        known = value.tensor.known_result(frame)
        if known is None:
            raise NotConstant(value.describe())
        return known.numpy()
    return _known(frame, value)


def _quietly(function: Any, given: list[Any], named: dict[str, Any]) -> Any:
    """What a function gives; None where it warns or raises, which plain Python does."""
    try:
        with without_warnings() as warned, np.errstate(all="raise"):
            found = function(*given, **named)
    except Exception:
        return None
    return None if warned else found


def _known(frame: Frame, value: Value) -> Any:
    found = value.known if isinstance(value, NumberValue) else plain(frame, value)
    if found is None and isinstance(value, NumberValue) or not _is_plain(found):
        raise NotConstant(value.describe())
    return found


def _is_plain(value: Any) -> bool:
    """Nothing whose own methods numpy would call."""
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple, torch.Size) and len(value) <= _MOST_ITEMS and all(map(_is_plain, value))
    return (
        type(value) in (int, float, bool, str, type(None), *NUMBERS)
        or isinstance(value, np.dtype)
        or (isinstance(value, type) and value.__module__ in ("builtins", "numpy"))
    )


def _value(frame: Frame, found: Any) -> Value:
    if type(found) in (tuple, list):
        parts = [_value(frame, part) for part in found]
        return TupleValue(parts) if type(found) is tuple else ListValue(parts)
    if type(found) in (int, float, bool, str, type(None)):
        return ConstantValue(found)
    if isinstance(found, np.generic):
        return constant_number(frame, found)
    if isinstance(found, np.ndarray):
        return constant_array(frame, found) if found.base is None else _view(frame, found)
    raise refused(f"a {type(found).__name__}")


class _Whole:
    """All of an array, in a shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape

    def __call__(self, base: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return base[...].reshape(self.shape)


def _view(frame: Frame, found: np.ndarray[Any, Any]) -> Value:
    """An array over the whole memory of another, which nobody else has."""
    base = found.base
    if type(base) is not np.ndarray or base.dtype != found.dtype or not found.flags.c_contiguous:
        raise refused("a view of an array of known numbers")
    if base.nbytes != found.nbytes:
        raise refused("a view of a part of an array of known numbers")
    made = constant_array(frame, base)
    step = _Whole(found.shape)
    tensor = frame.capture.graph.call("view", [made.tensor, ConstantValue(found.shape)], is_method=True)
    assert isinstance(tensor, TensorValue)
    return made.view(tensor, step)
