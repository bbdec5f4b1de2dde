"""Arrays with a content that is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.ndarray import ArrayValue, refused
from framejit.values.arrays.ufuncs import full
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MOST_CONSTANTS: Final = 1 << 16


def constant_array(frame: Frame, array: np.ndarray[Any, Any]) -> ArrayValue:
    """An array that is made anew by each call, with a content that is known."""
    if (
        type(array) is not np.ndarray
        or torch_dtype(array.dtype) is None
        or not array.size
        or not array.flags.c_contiguous
        or array.base is not None
    ):
        raise refused("an array of other dtypes or layouts, or an empty one,")
    shape = array.shape
    first = array.flat[0].item()
    if (
        array.dtype.kind != "f"
        and (array == first).all()
        or array.dtype.kind == "f"
        and (array.tobytes() == array.flat[:1].tobytes() * array.size)
    ):
        return ArrayValue(full(frame, shape, first, array.dtype))
    if array.size > _MOST_CONSTANTS:
        raise refused("a large array of constants")
    kept = torch.from_numpy(array.copy())
    graph = frame.capture.graph
    copied = graph.call("clone", [graph.add_constant(kept, f"constant array {len(graph.inputs)}")], is_method=True)
    assert isinstance(copied, TensorValue)
    return ArrayValue(copied)
