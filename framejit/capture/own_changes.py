"""What captured code itself will have changed by the next call: it reads a number or a tensor from an object that
existed before, and leaves another number, or a tensor of another size, in its place. A counter and a cache that grows
are such. To assume the number or the size would make an entry for one call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit.capture.dynamic_dims import OwnChange
from framejit.guards.sources import DictSource, IndexSource, Source, key_source
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import ListValue
from framejit.values.inspection import instance_dict
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture


class FoundOwnChanges(Exception):
    """Capture again from the start, and do not assume what changes."""

    def __init__(self, changes: list[OwnChange]) -> None:
        super().__init__(", ".join(change.source_name for change in changes))
        self.changes = changes


def own_changes(capture: Capture, holder: Value) -> Iterator[OwnChange]:
    """What changes in an object that captured code has written into, as far as it has come."""
    for before, source, after in _overwritten(capture, holder):
        if isinstance(after, TensorValue):
            if type(before) is torch.Tensor:
                yield from _sizes(capture, before, after)
        elif type(before) in (int, float) and type(before) is after.python_type() and capture.assumes_equal(source):
            if not (isinstance(after, ConstantValue) and after.value == before):
                yield OwnChange(source.name())


def _overwritten(capture: Capture, holder: Value) -> Iterator[tuple[Any, Source, Value]]:
    """Each part of an existing object that was written: what is there, where that is read, and what replaces it."""
    if holder.source is None:
        return
    if isinstance(holder, ObjectValue):
        if holder.obj is not None:
            own = instance_dict(holder.obj) or {}
            for name, after in holder.attrs.items():
                if after is not None and name in own:
                    yield own[name], key_source(DictSource(holder.source), name), after
        return
    there = capture.real(holder)
    if type(there) is dict and isinstance(holder, DictValue):
        for key, after in holder.items.items():
            if type(key) is str and key in there:
                yield there[key], key_source(holder.source, key), after
    elif type(there) is list and isinstance(holder, ListValue) and holder.is_known:
        for index, (before, after) in enumerate(zip(there, holder.children())):
            yield before, IndexSource(holder.source, index), after


def _sizes(capture: Capture, before: torch.Tensor, after: TensorValue) -> Iterator[OwnChange]:
    read = capture.known(before)
    if not isinstance(read, TensorValue) or read.source is None or after.fake.dim() != before.dim():
        return
    sizes = tuple(
        (dim, size, next_size)
        for dim, (size, next_size) in enumerate(zip(before.shape, map(_size_now, after.fake.shape)))
        if size != next_size and type(read.fake.shape[dim]) is int
    )
    change = OwnChange(read.source.name(), sizes)
    if sizes and capture.dynamic.is_news(change):
        yield change


def _size_now(size: int | torch.SymInt) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size
