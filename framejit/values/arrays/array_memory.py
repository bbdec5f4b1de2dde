"""Arrays of numpy and tensors over the same memory: what replacement code and guards call to get from one to the
other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

_KINDS: Final = (
    (torch.bool, np.bool_),
    (torch.uint8, np.uint8),
    (torch.int8, np.int8),
    (torch.int16, np.int16),
    (torch.int32, np.int32),
    (torch.int64, np.int64),
    (torch.float32, np.float32),
    (torch.float64, np.float64),
)
DTYPES: Final[dict[torch.dtype, np.dtype[Any]]] = {ours: np.dtype(theirs) for ours, theirs in _KINDS}
"""The dtypes in which torch computes as numpy does."""
_BY_NUMBER: Final[dict[int, torch.dtype]] = {theirs.num: ours for ours, theirs in DTYPES.items()}
NUMBERS: Final[frozenset[type]] = frozenset(theirs.type for theirs in DTYPES.values())
"""The classes of numpy's numbers in these dtypes."""


def torch_dtype(dtype: np.dtype[Any]) -> torch.dtype | None:
    """Torch's name for a dtype; None for one in which torch does not compute, or not as numpy does."""
    return _BY_NUMBER.get(dtype.num) if dtype.isnative and dtype.metadata is None else None


def tensor_over(array: Any) -> torch.Tensor | None:
    """A tensor over the memory of an array; None for an array that no tensor can stand for."""
    if type(array) is not np.ndarray or torch_dtype(array.dtype) is None:
        return None
    flags = array.flags
    if (
        not flags.writeable
        or not flags.aligned
        or not array.size
        or any(stride < 0 or stride % array.itemsize for stride in array.strides)
    ):
        return None
    return torch.from_numpy(array)


def tensor_of_number(number: Any) -> torch.Tensor | None:
    """A tensor without dimensions that holds one of numpy's numbers."""
    return torch.from_numpy(np.array(number)) if type(number) in NUMBERS else None


def plain_number(number: Any) -> Any:
    """One of numpy's numbers as Python's."""
    return number.item()


def own_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """An array that owns its memory, as those have that numpy's functions make."""
    return tensor.numpy().copy(order="K")


def number_of(tensor: torch.Tensor) -> Any:
    """The only element of a tensor as one of numpy's numbers."""
    return tensor.numpy()[()]


class ViewOf:
    """Makes of an array the view that a row of numpy's own steps makes."""

    def __init__(self, steps: tuple[Callable[[Any], Any], ...]) -> None:
        self.steps = steps

    def __call__(self, array: Any) -> Any:
        for step in self.steps:
            array = step(array)
        return array
