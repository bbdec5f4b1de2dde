"""Lists of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.shown_warnings import is_recording
from framejit.models.absent import message
from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.length_hints import gathered
from framejit.values.containers.open_ends import OpenEnds
from framejit.values.containers.sequence import SequenceValue, sequence_part
from framejit.values.containers.sorting import sort_values
from framejit.values.containers.unread_items import Unread
from framejit.values.folding import plain
from framejit.values.indices import as_index
from framejit.values.journal import Appended, Changed, Held, Wrote, int_of
from framejit.values.methods import method
from framejit.values.wrap import from_python, makes, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Codegen, Frame
    from framejit.values.journal import Journal


_NOT_REMOVED = message([].remove, 0)


class _Asked(list[Any]):
    asked = False

    def __iter__(self) -> Iterator[Any]:
        self.asked = True
        return super().__iter__()


_asked = _Asked()
_asked.extend(_asked)
_ASKED_FOR_ITSELF = _asked.asked
"""Whether an instance of a subclass of list that is extended by itself is iterated as its class says: before CPython
3.13."""


class ListValue(OpenEnds, SequenceValue):
    """A list; changes are replayed on the real one if it has a source."""

    mutable = True

    cls: type = list
    journal: Journal | None = None
    """While a call is followed that may come to the list: what is told of each look at `items`."""

    def __init__(
        self, items: list[Value], source: Source | None = None, unread: Unread | None = None
    ) -> None:
        self.source = source
        self.changes = 0  # how often it was changed, by which iterators and sorting notice
        self._items = list(items)
        self._is_of_subclass = unread is not None and not unread.is_exact
        self._unread = unread  # of an existing list; until somebody looks, `_items` is what was appended
        self._rewritten = unread is None

    @property
    def is_known(self) -> bool:
        """Whether it was looked at, and its items are all there."""
        return self._unread is None

    @property
    def items(self) -> list[Value]:
        """What the list holds.  Asking guards the length of an existing list; appending does not ask."""
        if self._unread is not None:
            self._items = self._bounded(self._unread.look() + self._items)
            self._unread, self._rewritten = None, True
        if self.journal is not None:
            self.journal.add(Held(self, (), tuple(self._items)))
        return self._items

    @items.setter
    def items(self, items: list[Value]) -> None:
        """The list's items. Asking guards the length of an existing list; appending does not ask."""
        if self.journal is not None:
            self.journal.add(Changed(self))
        self._unread, self._items, self._rewritten = None, items, True

    @property
    def kept_items(self) -> list[Value]:
        """What `items` holds of a list that is known, without telling the journal."""
        return self._items

    def children(self) -> Iterator[Value]:
        return iter(self._items)

    def python_type(self) -> type:
        return self.cls

    def make(self, items: list[Value]) -> ListValue:
        return ListValue(items)

    def made_of(self, unread: Unread, appended: list[Value]) -> ListValue:
        return ListValue(appended, None, unread)

    def plain_copy(self, frame: Frame) -> Any:
        return [plain(frame, i) for i in self.items]

    def proxy(self) -> Any:
        return [i.proxy() for i in self.items]

    def touch(self, frame: Frame) -> None:
        """Called at each change."""
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Changed(self))

    def _touch(self, frame: Frame) -> None:
        frame.capture.effects.changed(self)
        self.changes += 1

    def _bounded(self, items: list[Value]) -> list[Value]:
        """As many of the items, the last ones, as there is room for."""
        return items

    def truth(self, frame: Frame) -> bool:
        is_asked = self.journal is not None or not self.is_known
        return frame.truth(self._len(frame)) if is_asked else super().truth(frame)

    def _subscript(self, frame: Frame, key: Value) -> Value:
        if self.journal is not None:
            key = realize(frame, key)
            place = self._place(key)
            if place is not None:
                found = self.journal.read(self, key, self._items[place])
                assert found is not None
                return found
        elif not self.is_known:
            key = deep_realize(frame, [key])[0]
            end: Value | None = None
            if isinstance(key, ConstantValue) and type(key.value) is slice:
                end = self._sliced(frame, key.value)
            elif isinstance(key, ConstantValue) and type(key.value) is int:
                end = self._item_at_an_end(frame, key.value)
            if end is not None:
                return end
        return super()._subscript(frame, key)

    def _place(self, key: Value) -> int | None:
        """The place that a number is the index of; None without one."""
        index = int_of(key)
        size = len(self._items)
        return index % size if index is not None and self.is_known and -size <= index < size else None

    @method("__len__")
    def _len(self, frame: Frame) -> Value:
        if self.journal is not None and self.is_known:
            return self.journal.length(self, len(self._items))
        unread = self._at_its_ends(frame)
        length = None if unread is None else unread.length(frame)
        if length is None:
            return super()._len(frame)
        return frame.binary("+", length, ConstantValue(len(self._items))) if self._items else length

    def append(self, frame: Frame, item: Value) -> None:
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Appended(self, item))
        self._items.append(item)

    def write(self, frame: Frame, place: int, key: Value, value: Value) -> None:
        """Put a value at a place, which the program names by `key`."""
        self._touch(frame)
        if self.journal is not None:
            self.journal.add(Wrote(self, key, value))
        self._items[place] = value

    def is_part_of(self, value: Value) -> bool:
        """Whether a value is this very list, or the instance of a subclass of which this is the built-in part."""
        return sequence_part(value) is self

    def change(self, frame: Frame, items: list[Value]) -> None:
        self.touch(frame)
        self.items[:] = items

    def _extend(self, frame: Frame, other: Value) -> None:
        """Append items one at a time, as they come: what gives them may read this very list."""
        other = realize(frame, other)
        known = other if isinstance(other, SequenceValue) and other.python_type() in (list, tuple) else None
        if self.is_part_of(other):  # what it holds by now: what it is given comes behind that
            asked = other is not self and _ASKED_FOR_ITSELF  # its iterator for a length, it itself for none
            known = self.make(list(gathered(frame, frame.get_iter(other)))) if asked else self
        if known is not None and self.journal is not None:
            for item in [*known.items]:
                self.append(frame, item)
            return
        if isinstance(other, ListValue) and self._begins_as(frame, other):
            return
        if known is not None:
            items = [*known.items]
            self.touch(frame)
            self._end.extend(items)
            return
        for item in gathered(frame, other):
            self.touch(frame)
            self._end.append(item)

    def _begins_as(self, frame: Frame, other: ListValue) -> bool:
        """Become a copy of a list that nobody has looked at, if this one is new and empty: `[*losses]`."""
        if self.source is not None or self._items or not self.is_known or self.journal is not None:
            return False
        copied = other.copied(frame)
        if copied is None:
            return False
        self.touch(frame)
        self._items, self._unread, self._rewritten = copied._items, copied._unread, False
        return True

    @property
    def _end(self) -> list[Value]:
        """What items are appended to."""
        return self._items if self.journal is None else self.items

    @method("append")
    def _append(self, frame: Frame, item: Value) -> Value:
        self.append(frame, item)
        return NONE

    @method("extend")
    def _extended(self, frame: Frame, items: Value) -> Value:
        self._extend(frame, items)
        return NONE

    @method("__iadd__")
    def _extended_in_place(self, frame: Frame, items: Value) -> Value:
        self._extend(frame, items)
        return self

    @method("__imul__")
    def _multiply_in_place(self, frame: Frame, count: Value) -> Value:
        repeated = self._repeated(frame, count)
        if repeated is None:
            return ConstantValue(NotImplemented)
        self.change(frame, repeated)
        return self

    @method("insert")
    def _insert(self, frame: Frame, place: Value, item: Value) -> Value:
        self._edit(frame, list.insert, as_index(frame, place), item)
        return NONE

    @method("pop")
    def _pop(self, frame: Frame, *place: Value) -> Value:
        at = as_index(frame, place[0]) if len(place) == 1 and not self.is_known else -1
        taken = self._take_from(frame, at == 0) if len(place) < 2 and type(at) is int and at in (0, -1) else None
        if taken is not None:
            return taken
        found = self._edit(frame, list.pop, *(as_index(frame, a) for a in place))
        assert isinstance(found, Value)
        return found

    @method("remove")
    def _remove_item(self, frame: Frame, item: Value) -> Value:
        at = self._find(frame, item)
        if at < 0:
            raise frame.raised(ValueError, _NOT_REMOVED)
        self._edit(frame, list.pop, at)
        return NONE

    @method("clear")
    def _clear(self, frame: Frame) -> Value:
        self.touch(frame)
        self.items = []
        return NONE

    @method("reverse")
    def _reverse(self, frame: Frame) -> Value:
        self.change(frame, self.items[::-1])
        return NONE

    @method("copy")
    def _copy(self, frame: Frame) -> Value:
        return self.copied(frame) or self.make(list(self.items))

    @method("__reversed__")
    def _reversed(self, frame: Frame) -> Value:
        return self.reverse_iterator(frame)

    @method("__setitem__")
    def _setitem(self, frame: Frame, place: Value, value: Value) -> Value:
        if self.journal is not None:
            place = realize(frame, place)
            at = self._place(place)
            if at is not None:
                self.write(frame, at, place, value)
                return NONE
        elif not self.is_known:
            place = deep_realize(frame, [place])[0]
            if self._replace_at_an_end(frame, place, value):
                return NONE
        key = self._index(frame, place)
        if not isinstance(key, slice):
            self._edit(frame, list.__setitem__, key, value)
            return NONE
        value = realize(frame, value)
        if isinstance(value, ConstantValue) and not hasattr(type(value.value), "__iter__"):
            self._edit(frame, list.__setitem__, key, value.value)  # raises
        # a list's own items are copied without asking the class how it is iterated
        items = list(self.items) if self.is_part_of(value) else list(frame.iterate(value))
        self._edit(frame, list.__setitem__, key, items)
        return NONE

    @method("__delitem__")
    def _delitem(self, frame: Frame, place: Value) -> Value:
        self._edit(frame, list.__delitem__, self._index(frame, place))
        return NONE

    def _edit(self, frame: Frame, method: Callable[..., Any], *args: Any) -> Any:
        """Change the items by a real method of lists; what it raises, the program raises."""
        try:
            result = method(self.items, *args)
        except (IndexError, ValueError, TypeError, OverflowError) as e:
            raise frame.raised(type(e), str(e)) from None  # and nothing has changed
        self.touch(frame)
        return result

    @method("sort")
    def _sort(self, frame: Frame, /, **kwargs: Value) -> Value:
        """Sort in place: meanwhile the list is empty, and whoever changes it is told."""
        self.refuse_if_open(frame, "list.sort")
        items = list(self.items)
        self.change(frame, [])
        changes = self.changes
        try:
            sort_values(frame, items, kwargs)
        finally:
            modified = self.changes != changes
            self.change(frame, items)
        if modified:
            raise frame.raised(ValueError, "list modified during sort")
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        if cg.holds_itself(self):
            self._items = self.items  # which is looked at here, for replay to fill in
            cg.em.build("LIST", 0)
            cg.capture.effects.changed(self)
            return
        if self.is_known:
            self._load_items(cg)
        else:
            self._load_unread(cg)

    def replay(self, cg: Codegen) -> None:
        """Make the real list hold the items it has now."""
        em = cg.em
        if self.source is None and not self.is_known:
            return  # it was built as it is now
        if not self._rewritten:
            self._replay_taken(cg)
            for item in self._items:
                cg.call_function(list.append, self, item)  # whatever methods a subclass has
                em.pop()
            return

        def load_whole() -> None:
            em.load_object(None)
            em.load_object(None)
            em.build("SLICE", 2)

        if self._is_of_subclass:
            em.call_object(list.__setitem__, lambda: (cg.load(self), load_whole(), self._load_items(cg)), 3)
            em.pop()
            return
        self._load_items(cg)
        cg.load(self)
        load_whole()
        em.op("STORE_SUBSCR")

    def _load_items(self, cg: Codegen) -> None:
        for item in self.items:
            cg.load(item)
        cg.em.build("LIST", len(self.items))


@wraps(list)
def _existing_list(capture: Capture, obj: list[Any], source: Source) -> Value:
    if is_recording(obj):
        raise Unsupported("a list that warnings are put into, of operations too that are yet to run", "FJ126")
    capture.add_guard(source, native.C_TYPE, list)
    return ListValue([], source, Unread(capture, obj, source))


@makes(list)
def _made_list(obj: list[Any]) -> Value:
    return ListValue([from_python(x) for x in obj])
