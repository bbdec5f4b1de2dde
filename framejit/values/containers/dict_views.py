"""Views of dicts: keys(), values(), items()."""

from __future__ import annotations

import operator
import types
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.containers.hashing import real_call
from framejit.values.containers.mapping import MAKERS_OF_VIEWS, DictValue
from framejit.values.containers.sets import SetValue, set_part
from framejit.values.containers.table_iterator import TableIterator
from framejit.values.containers.tuples import TupleValue
from framejit.values.methods import BuiltinMethods, method

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_RELATIONS = {
    "__eq__": operator.eq, "__ne__": operator.eq, "__lt__": operator.lt, "__le__": operator.le, "__gt__": operator.gt,
    "__ge__": operator.ge,
}
"""How the sizes are related, if a view is to be so related to another set; "__ne__" is what "__eq__" is not."""
_UPDATES = {"__or__": "update", "__and__": "", "__sub__": "difference_update", "__xor__": "symmetric_difference_update"}


class DictViewValue(BuiltinMethods):
    """A view of a dict: of its values or, as a SetLikeViewValue, of its keys or items."""

    mutable = True

    def __init__(self, mapping: DictValue, kind: str) -> None:
        self.mapping, self.kind = mapping, kind

    def python_type(self) -> type:
        empty: dict[Any, Any] = OrderedDict() if self.mapping.cls is OrderedDict else {}
        return type(getattr(empty, self.kind)())

    def children(self) -> Iterator[Value]:
        return iter((self.mapping.whole,))

    def truth(self, frame: Frame) -> bool:
        return bool(self.mapping.items)

    def iterate(self, frame: Frame) -> Iterator[Value]:
        if self.kind == "keys":
            return self.mapping.iterate(frame)
        if self.kind == "values":
            return iter(list(self.mapping.items.values()))
        return iter([TupleValue([k, v]) for k, v in self.mapping.keys_and_values()])

    def iterator(self, frame: Frame) -> Value:
        return TableIterator(frame, self, self.mapping, self.kind)

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "mapping":
            raise Unsupported("the mapping behind a view of a dict")
        return super().getattr(frame, name)

    @method("__len__")
    def _length(self, frame: Frame) -> Value:
        return ConstantValue(len(self.mapping.items))

    @method("__contains__")
    def _has(self, frame: Frame, item: Value) -> Value:
        return ConstantValue(self._contains(frame, item))

    @method("__iter__")
    def _iterated(self, frame: Frame) -> Value:
        return frame.get_iter(self)

    @method("__reversed__")
    def _reversed(self, frame: Frame) -> Value:
        return TableIterator(frame, self, self.mapping, self.kind, backwards=True)

    @method("__eq__", "__ne__")
    def _compared_as_object(self, frame: Frame, other: Value) -> Value:
        return ConstantValue(NotImplemented)

    def _contains(self, frame: Frame, item: Value) -> bool:
        return any(frame.equal(v, item) for v in self.iterate(frame))

    def reconstruct(self, cg: Codegen) -> None:
        if self.mapping.cls is types.MappingProxyType:
            cg.call_method(self.mapping, self.kind)
        else:  # a subclass may have methods of these names
            cg.call_function(getattr(self.mapping.real, self.kind), self.mapping.whole)


class SetLikeViewValue(DictViewValue):
    """A view of a dict's keys or items."""

    def _contains(self, frame: Frame, item: Value) -> bool:
        if self.kind == "keys":
            return bool(self.mapping.call_method(frame, "__contains__", [item], {}).constant())
        part = getattr(item, "base", None) or item
        if not isinstance(part, TupleValue) or len(part.items) != 2:
            return False
        found = real_call(frame, dict.get, self.mapping.items, [self.mapping.look_up(frame, part.items[0]), None], {})
        return found is not None and frame.equal(found, part.items[1])

    @method("isdisjoint")
    def _is_disjoint(self, frame: Frame, others: Value) -> Value:
        return ConstantValue(not any(self._contains(frame, item) for item in frame.drain(frame.get_iter(others))))

    def _set(self, frame: Frame) -> SetValue:
        made, exact = SetValue(set()), self.mapping.cls is dict and self.mapping.owner is None
        made.call_method(frame, "update", [self.mapping if self.kind == "keys" and exact else self], {})
        return made

    @method(*_UPDATES, tells_name=True)
    def _with(self, frame: Frame, name: str, other: Value) -> Value:
        return self._combined(frame, name, self, other)

    @method(*(f"__r{name[2:]}" for name in _UPDATES), tells_name=True)
    def _with_left(self, frame: Frame, name: str, other: Value) -> Value:
        return self._combined(frame, f"__{name[3:]}", other, self)

    def _combined(self, frame: Frame, symbol: str, left: Value, right: Value) -> Value:
        """`left <symbol> right`, of which one is a view: a set of what the left one has, changed by the right one."""
        if symbol == "__and__":
            return self._intersection(frame, right if left is self else left)
        if symbol == "__xor__" and all(isinstance(v, SetLikeViewValue) and v.kind == "items" for v in (left, right)):
            raise Unsupported("the symmetric difference of two views of items")
        made = left._set(frame) if isinstance(left, SetLikeViewValue) else None
        if made is None:
            made = SetValue(set())
            made.call_method(frame, "update", [left], {})
        made.call_method(frame, _UPDATES[symbol], [right], {})
        return made

    def _intersection(self, frame: Frame, other: Value) -> Value:
        """CPython's _PyDictView_Intersect: what is smaller is gone through, where that is known."""
        view = self
        if (
            isinstance(other, SetValue)
            and other.owner is None
            and other.cls is set
            and len(view.mapping.items) <= len(other.items)
        ):
            return other.call_method(frame, "intersection", [view], {})
        if isinstance(other, SetLikeViewValue) and len(other.mapping.items) > len(view.mapping.items):
            view, other = other, view
        made = SetValue(set())
        for item in frame.drain(frame.get_iter(other)):
            if view._contains(frame, item):
                made.put(frame, item)
        return made

    @method(*_RELATIONS, tells_name=True)
    def _compare(self, frame: Frame, name: str, other: Value) -> Value:
        """CPython's dictview_richcompare: by sizes, and by whether all of one is in the other."""
        if set_part(other) is None and not isinstance(other, SetLikeViewValue):
            return ConstantValue(NotImplemented)
        mine, theirs = len(self.mapping.items), int(other.call_method(frame, "__len__", [], {}).constant())
        part, whole = (other, self) if name in ("__gt__", "__ge__") else (self, other)
        outcome = _RELATIONS[name](mine, theirs) and all(
            frame.contains(whole, item) for item in frame.drain(frame.get_iter(part))
        )
        return ConstantValue(outcome != (name == "__ne__"))


MAKERS_OF_VIEWS["values"] = partial(DictViewValue, kind="values")
MAKERS_OF_VIEWS.update({kind: partial(SetLikeViewValue, kind=kind) for kind in ("keys", "items")})
