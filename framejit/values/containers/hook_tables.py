"""The tables of hooks of modules and tensors: which hook is called is known, the number that its handle got is
not looked at."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import AttrSource, CallSource, DictSource, DictValueSource, IndexSource, KeySource
from framejit.values.base import Value
from framejit.values.containers.mapping import DictValue
from framejit.values.lazy import LazyValue

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Frame

_NAMES = frozenset(("_forward_hooks", "_forward_pre_hooks"))
_OF_TENSORS = frozenset(("_backward_hooks", "_post_accumulate_grad_hooks"))


def is_hook_table(obj: Any, source: Source) -> bool:
    """Whether a dict is the table of the one hook of a module or tensor. The order of more is the OrderedDict's own,
    which no guard sees where it doesn't look at the keys."""
    if type(obj) is not OrderedDict or len(obj) != 1 or not all(type(number) is int for number in dict.keys(obj)):
        return False
    if isinstance(source, AttrSource):
        return source.attr in _OF_TENSORS
    return isinstance(source, KeySource) and source.key.value in _NAMES and isinstance(source.origin, DictSource)


class _Key(LazyValue):
    """The key of an existing table, which nobody has looked at yet."""

    is_key = True


class HookTableValue(DictValue):
    """A table of one hook. torch counts handles through the whole process, so that modules alike have their hooks under
    numbers of their own. Calling the hook looks at none; whoever asks for more than the items finds the plain dict, its
    keys guarded."""

    def __init__(self, capture: Capture, obj: OrderedDict[int, Any], source: Source) -> None:
        self._capture, self._settled = capture, True
        [(number, hook)] = obj.items()
        capture.add_guard(source, native.C_LEN, 1)
        self._number = number
        self._key = _Key(number, IndexSource(CallSource(source, tuple), 0))
        super().__init__({number: LazyValue(hook, DictValueSource(source, 0))}, source, OrderedDict)
        self._settled = False

    @property
    def items(self) -> dict[Any, Value]:
        if not self._settled:
            self._settled = True
            assert self.source is not None
            self._capture.add_guard(CallSource(self.source, tuple), native.C_EQUALS, (self._number,))
        return self._items

    @items.setter
    def items(self, items: dict[Any, Value]) -> None:
        self._items = items

    def children(self) -> Iterator[Value]:
        return super().children() if self._settled else iter(self._items.values())

    def truth(self, frame: Frame) -> bool:
        return super().truth(frame) if self._settled else True

    def iterate(self, frame: Frame) -> Iterator[Value]:
        return super().iterate(frame) if self._settled else iter([self._key])

    def keys_and_values(self) -> list[tuple[Value, Value]]:
        return super().keys_and_values() if self._settled else [(self._key, v) for v in self._items.values()]
