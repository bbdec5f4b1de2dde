"""Writes that give tensors a history, of which fakes of other inputs over the same memory would not know.

What autograd knows of a tensor changes when its base is written, or a view of it: it may have a history then, and want
gradients. Fakes that lie in one memory say so of each other. Those of inputs may lie in memory of their own where the
tensors share some, and inputs that come later are as they are before the graph.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from framejit.signals import Unsupported

if TYPE_CHECKING:
    from framejit.values.context import Capture, Graph
    from framejit.values.tensors.tensor import TensorValue


def check_late_view(capture: Capture, tensor: torch.Tensor) -> None:
    """Break the graph at an existing tensor that a write has given a history which comes from captured code."""
    if not any(map(_has_history, capture.effects.written_tensors.values())):
        return
    with torch._C.DisableTorchFunctionSubclass():
        memory = tensor.untyped_storage()._cdata
    for value, example in zip(capture.graph.inputs, capture.graph.examples):
        if example.untyped_storage()._cdata == memory and capture.graph.writes.into(value.fake):
            raise Unsupported("a tensor that was not looked at before its memory was written, with gradients", "FJ107")


def check_written_views(graph: Graph, written: Iterable[TensorValue]) -> None:
    """Break the graph at a write that gives an input a history which another one gets, too, in memory of its own."""
    changed = {value.fake.untyped_storage()._cdata for value in written if _has_history(value)}
    if not changed:
        return
    inputs = [
        (value.fake.untyped_storage()._cdata, example.untyped_storage()._cdata)
        for value, example in zip(graph.inputs, graph.examples)
    ]
    memory = {real for fake, real in inputs if fake in changed}
    if any(real in memory and fake not in changed for fake, real in inputs):
        raise Unsupported("a write with gradients into memory that inputs share", "FJ107")


def _has_history(value: TensorValue) -> bool:
    try:
        return value.fake.requires_grad and not value.fake.is_leaf
    except RuntimeError:  # a view that was made without gradients: torch refuses to look for what a write would give it
        return False
