"""Counts of steps, which torch's optimisers keep in tensors and compute with as Python numbers.

`torch.optim.optimizer._get_value` reads one. What Adam and its kin compute of it (`1 - beta ** step`, `lr / that`)
raises in plain Python only for counts that are none; that it is one is guarded, and the graph goes on with the number
as a tensor.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.optim.optimizer import _get_value

from framejit import _native as native
from framejit.values.base import Value, realize
from framejit.values.handlers import HANDLERS
from framejit.values.runtime_numbers.kept_counts import added_to
from framejit.values.runtime_numbers.read_number import read_float
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


def _is_count(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds a number that is not negative."""
    return tensor.numel() == 1 and bool(tensor.item() >= 0)


def _read(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`_get_value(step)`, as in plain Python: the number in the tensor."""
    if len(args) != 1 or kwargs:
        return None
    step = realize(frame, args[0])
    if not isinstance(step, TensorValue):
        return step
    least = _least(frame, step)
    return None if least is None else read_float(frame, step, (least, math.inf))


def _least(frame: Frame, step: TensorValue) -> float | None:
    """What a count surely is at least at this point; None where that is not known: it is no input, or captured code
    did something else to it than adding 1."""
    graph = frame.capture.graph
    if step.source is None or step.fake.device.type != "cpu" or not step.fake.is_floating_point():
        return None
    example = graph.example_of(step)
    if example is None or not _is_count(example):
        return None
    added = added_to(graph, step.fake, step.node)
    if added is not None:
        frame.capture.add_guard(step.source, native.C_PY, _is_count)
    return added


HANDLERS[_get_value] = _read
