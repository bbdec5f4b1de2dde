"""Numbers that a list, tuple or dict from outside has under an index or key that is not assumed, as those of schedules:
`betas[step]`, `rates[epoch]`. What stands there is read anew at each call; that it is a number of the same kind is
guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from framejit import _native as native
from framejit.guards.sources import CallSource, ComputedSource, GetItemSource, Source, TypedKey
from framejit.late_dataclass import dataclass
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.folded_numbers import NUMBERS
from framejit.values.runtime_numbers.size_number import place_of
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue, guard_answer

if TYPE_CHECKING:
    from framejit.values.context import Capture, Frame


class PickedNumberValue(SymNumberValue):
    """A number under the key `key` of what is read at `holder`, or, without one, of what never changes. Whoever must
    know it assumes the key."""

    def __init__(
        self, capture: Capture, value: int | float, source: Source, key: Value, holder: Source | None
    ) -> None:
        super().__init__(capture, value, source)
        self._key, self._holder = key, holder

    def assume(self) -> None:
        key = self._key.constant()
        if self._holder is not None:
            self.capture.add_guard(GetItemSource(self._holder, TypedKey(key)), native.C_EQUALS, self.value)

    def _inner_leaves(self) -> tuple[SymNumberValue, ...]:
        return (self,)


def place_of_open_int(key: Value) -> tuple[int, Source] | None:
    """An int that is not assumed, now, and where it can be computed again; None for other values."""
    if isinstance(key, SymIntValue):
        return None if key.is_of_data() else (int(key.size.node.hint), place_of(key))
    if isinstance(key, SymNumberValue) and key.python_type() is int:
        return int(key.value), key.source
    return None


def picked(frame: Frame, holder: Value, key: Value) -> Value | None:
    """`holder[key]` where the key is an int that is not assumed, and a number stands there; None where the key has to
    be known."""
    index = place_of_open_int(key)
    if index is None:
        return None
    known = holder.value if isinstance(holder, ConstantValue) else getattr(holder, "existing", None)
    if type(known) is tuple:
        now, place = index
        read = KnownItems(known)
        return _number(frame.capture, read(now), ComputedSource(read, (place,)), key, None)
    if holder.source is None or frame.capture.effects.has_changed(holder):
        return None
    obj = frame.capture.real(holder)
    if type(obj) is dict and has_plain_keys(obj):
        frame.capture.add_guard(CallSource(holder.source, has_plain_keys), native.C_ID, True)
        return picked_from(frame.capture, item_of, obj, holder.source, key, index)
    return picked_from(frame.capture, item_at, obj, holder.source, key, index) if type(obj) in (list, tuple) else None


def picked_from(
    capture: Capture, read: Callable[[Any, Any], Any], obj: Any, source: Source, key: Value, index: tuple[Any, Source]
) -> Value | None:
    """The same of an existing object, from which `read` reads. `index`: the key now, and where it is computed again."""
    now, place = index
    return _number(capture, read(obj, now), ComputedSource(read, (source, place)), key, source)


def _number(capture: Capture, item: Any, place: Source, key: Value, holder: Source | None) -> Value | None:
    if type(item) not in NUMBERS:
        return None
    guard_answer(capture, ComputedSource(_HAS_KIND[type(item)], (place,)), True)
    return PickedNumberValue(capture, item, place, key, holder)


@dataclass(frozen=True, eq=False)
class KnownItems:
    """The items of a tuple that never changes."""

    items: tuple[Any, ...]

    def __call__(self, index: int) -> Any:
        return item_at(self.items, index)


def item_at(items: Any, index: int) -> Any:
    """An item of a list or tuple; None where it has none there."""
    return items[index] if -len(items) <= index < len(items) else None


def item_of(table: dict[Any, Any], key: Any) -> Any:
    """An item of a dict; None where it has none under that key."""
    return table.get(key)


def is_float(item: Any) -> bool:
    return type(item) is float


def is_int(item: Any) -> bool:
    return type(item) is int


_PLAIN: Final = frozenset((int, float, bool, str, bytes, type(None)))


def is_plain_key(key: Any) -> bool:
    """Whether no code of the program runs where a key is compared."""
    return all(map(is_plain_key, key)) if type(key) is tuple else type(key) in _PLAIN


def has_plain_keys(table: dict[Any, Any]) -> bool:
    """Whether no code of the program runs where a key is looked for."""
    return _PLAIN.issuperset(map(type, table)) or all(map(is_plain_key, table))


_HAS_KIND: Final = {float: is_float, int: is_int}
