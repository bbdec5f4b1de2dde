"""What captured code itself will have changed by the next call: it reads a number or a tensor from an object that
existed before, and leaves another number, or a tensor of another size, in its place. A counter and a cache that grows
are such. To assume the number or the size would make an entry for one call.

A cache that is empty and is filled with what has the sizes of an input tells as much of the input: these are as long as
the prompt is, which is another one for the next cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.capture.dynamic_dims import OwnChange, is_of_module
from framejit.guards.sources import ArgSource, IndexSource, Source, key_source
from framejit.symbols.conditions import LEAST
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.inspection import instance_dict, is_a
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture

LOOKED_AT_EARLY: Final = 16
"""Objects that are looked at as soon as another is changed: a cache shows at its first layers that it grows, and the
capture need not go through all of them in vain."""
MOST_NUMBERS: Final = 256
"""Numbers that are left open for this; where more change, they are data rather than counters."""


class FoundOwnChanges(Exception):
    """Capture again from the start, and do not assume what changes."""

    def __init__(self, changes: list[OwnChange]) -> None:
        super().__init__(", ".join(change.source_name for change in changes))
        self.changes = changes


def changed_sizes(capture: Capture, holder: Value) -> list[OwnChange]:
    """The tensors of other sizes that captured code has left in an object, as far as it has come."""
    of_inputs = _sizes_of_inputs(capture) if _is_given(capture, holder) else set()
    found = []
    for before, source, after in _overwritten(capture, holder):
        if not isinstance(after, TensorValue):
            continue
        if before is None or type(before) is torch.Tensor and not before.numel():
            found.append(_filled(capture, source, after, of_inputs))
        elif type(before) is torch.Tensor:
            found.append(_sizes(capture, before, after))
    return [change for change in found if change is not None]


def changed_numbers(capture: Capture, holders: Iterable[Value]) -> list[OwnChange]:
    """The numbers that captured code has assumed and left other ones for, in objects that it has changed. Some have to
    be assumed, as where lists that hold them are compared: asking for these to be left open again would not end."""
    sources: dict[Source, None] = {}
    for holder in holders:
        for before, source, after in _overwritten(capture, holder):
            if type(before) in (int, float) and type(before) is after.python_type():
                if not (isinstance(after, ConstantValue) and after.value == before):
                    sources[source] = None
    if not 0 < len(sources) <= MOST_NUMBERS:
        return []
    assumed = {guard.source for guard in capture.guards_so_far() if guard.check == native.C_EQUALS}
    news = [source.name() for source in sources if source in assumed]
    return [OwnChange(name) for name in news if name not in capture.changing]


def _overwritten(capture: Capture, holder: Value) -> Iterator[tuple[Any, Source, Value]]:
    """Each part of an existing object that was written: what is there, where that is read, and what replaces it."""
    if holder.source is None:
        return
    if isinstance(holder, ObjectValue):
        if holder.obj is not None:
            own = instance_dict(holder.obj) or {}
            where = holder.dict_source()
            for name, after in holder.attrs.items():
                if after is not None and name in own and where is not None:
                    yield own[name], key_source(where, name), after
        return
    there = capture.real(holder)
    if type(there) is dict and isinstance(holder, DictValue) and holder.is_known:
        for key, after in holder.items.items():
            if type(key) is str and key in there and after.source is None:
                yield there[key], key_source(holder.source, key), after
    elif type(there) is list and isinstance(holder, ListValue) and holder.is_known:
        for index, (before, after) in enumerate(zip(there, holder.children())):
            if after.source is None:
                yield before, IndexSource(holder.source, index), after


def _sizes(capture: Capture, before: torch.Tensor, after: TensorValue) -> OwnChange | None:
    read = capture.known(before)
    if not isinstance(read, TensorValue) or read.source is None or after.fake.dim() != before.dim():
        return None
    sizes = tuple(
        (dim, size, next_size)
        for dim, (size, next_size) in enumerate(zip(before.shape, map(_size_now, after.fake.shape)))
        if size != next_size and type(read.fake.shape[dim]) is int
    )
    change = OwnChange(read.source.name(), sizes)
    return change if sizes and capture.dynamic.is_news(change) else None


def _filled(capture: Capture, source: Source, after: TensorValue, of_inputs: set[int]) -> OwnChange | None:
    """The sizes of inputs that a tensor has which captured code has put where nothing was."""
    sizes = tuple(
        (dim, size, size) for dim, size in enumerate(after.fake.shape) if type(size) is int and size in of_inputs
    )
    change = OwnChange(source.name(), sizes)
    return change if sizes and capture.dynamic.is_news(change) else None


def _sizes_of_inputs(capture: Capture) -> set[int]:
    """The sizes that are assumed, of inputs that may have others in another call."""
    return {
        size
        for tensor in capture.graph.inputs
        if tensor.source is not None and not is_of_module(tensor.source)
        for size in tensor.fake.shape
        if type(size) is int and size >= LEAST
    }


def _is_given(capture: Capture, holder: Value) -> bool:
    """Whether an object belongs to an argument. What a module keeps is for all calls to come, and says nothing of
    their sizes."""
    source = holder.source
    if source is None or isinstance(holder, ModuleValue) or is_of_module(source):
        return False
    while source.base is not None:
        source = source.base
    return isinstance(source, ArgSource) and not is_a(capture.flat_args[source.index], torch.nn.Module)


def _size_now(size: int | torch.SymInt) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size
