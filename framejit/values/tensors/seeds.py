"""Seeds of random number generators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MOST: Final = 2**63


def seed_in_tensor(frame: Frame, seed: Value) -> TensorValue | None:
    """An int, known or not, as a tensor without dimensions, which the graph makes; None of what is no int, or one that
    the tensor does not hold."""
    made: Value | None = None
    if isinstance(seed, ConstantValue) and type(seed.value) is int and -_MOST <= seed.value < _MOST or (
        isinstance(seed, SymIntValue) and not seed.is_of_data()
    ):
        kind: dict[str, Value] = {"dtype": ConstantValue(torch.int64), "device": ConstantValue(torch.device("cpu"))}
        made = frame.capture.graph.call(torch.full, [ConstantValue(()), seed], kind)
    elif isinstance(seed, SymNumberValue) and seed.python_type() is int:
        made = seed.in_dtype(torch.int64)
    return made if isinstance(made, TensorValue) else None
