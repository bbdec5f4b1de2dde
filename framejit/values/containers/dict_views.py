"""Views of dicts: keys(), values(), items()."""

from __future__ import annotations

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
from framejit.values.containers.sequence import TupleValue
from framejit.values.containers.sets import SetValue, set_part
from framejit.values.containers.table_iterator import TableIterator

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_RELATIONS = frozenset("__eq__ __ne__ __le__ __lt__ __ge__ __gt__".split())
_UPDATES = {"__or__": "update", "__and__": "", "__sub__": "difference_update", "__xor__": "symmetric_difference_update"}


class DictViewValue(Value):
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

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        match name, len(args):
            case "__len__", 0:
                return ConstantValue(len(self.mapping.items))
            case "__contains__", 1:
                return ConstantValue(self._contains(frame, args[0]))
            case "__iter__", 0:
                return frame.get_iter(self)
            case "__reversed__", 0:
                return TableIterator(frame, self, self.mapping, self.kind, backwards=True)
        if self.kind == "values":
            return (
                ConstantValue(NotImplemented)
                if name in ("__eq__", "__ne__")
                else super().call_method(frame, name, args, kwargs)
            )
        if name in _RELATIONS and len(args) == 1:
            return self._compare(frame, name, args[0])
        if name == "isdisjoint" and len(args) == 1:
            return ConstantValue(not any(self._contains(frame, item) for item in frame.drain(frame.get_iter(args[0]))))
        operator = f"__{name[3:]}" if name.startswith("__r") else name
        if operator in _UPDATES and len(args) == 1:
            left, right = (self, args[0]) if operator == name else (args[0], self)
            return self._combined(frame, operator, left, right)
        return super().call_method(frame, name, args, kwargs)

    def _contains(self, frame: Frame, item: Value) -> bool:
        if self.kind == "keys":
            return bool(self.mapping.call_method(frame, "__contains__", [item], {}).constant())
        if self.kind == "values":
            return any(frame.equal(v, item) for v in self.iterate(frame))
        part = getattr(item, "base", None) or item
        if not isinstance(part, TupleValue) or len(part.items) != 2:
            return False
        found = real_call(frame, dict.get, self.mapping.items, [self.mapping.look_up(frame, part.items[0]), None], {})
        return found is not None and frame.equal(found, part.items[1])

    def _set(self, frame: Frame) -> SetValue:
        made, exact = SetValue(set()), self.mapping.cls is dict and self.mapping.owner is None
        made.call_method(frame, "update", [self.mapping if self.kind == "keys" and exact else self], {})
        return made

    def _combined(self, frame: Frame, operator: str, left: Value, right: Value) -> Value:
        """`left <operator> right`, of which one is a view: a set of what the left one has, changed by the right one."""
        if operator == "__and__":
            return self._intersection(frame, right if left is self else left)
        if operator == "__xor__" and all(isinstance(v, DictViewValue) and v.kind == "items" for v in (left, right)):
            raise Unsupported("the symmetric difference of two views of items")
        made = left._set(frame) if isinstance(left, DictViewValue) and left.kind != "values" else None
        if made is None:
            made = SetValue(set())
            made.call_method(frame, "update", [left], {})
        made.call_method(frame, _UPDATES[operator], [right], {})
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
        if (
            isinstance(other, DictViewValue)
            and other.kind != "values"
            and len(other.mapping.items) > len(view.mapping.items)
        ):
            view, other = other, view
        made = SetValue(set())
        for item in frame.drain(frame.get_iter(other)):
            if view._contains(frame, item):
                made.put(frame, item)
        return made

    def _compare(self, frame: Frame, name: str, other: Value) -> Value:
        """CPython's dictview_richcompare: by sizes, and by whether all of one is in the other."""
        if set_part(other) is None and not (isinstance(other, DictViewValue) and other.kind != "values"):
            return ConstantValue(NotImplemented)
        mine, theirs = len(self.mapping.items), int(other.call_method(frame, "__len__", [], {}).constant())

        def all_in(a: Value, b: Value) -> bool:
            return all(frame.contains(b, item) for item in frame.drain(frame.get_iter(a)))

        outcome = {
            "__eq__": lambda: mine == theirs and all_in(self, other),
            "__ne__": lambda: not (mine == theirs and all_in(self, other)),
            "__lt__": lambda: mine < theirs and all_in(self, other),
            "__le__": lambda: mine <= theirs and all_in(self, other),
            "__gt__": lambda: mine > theirs and all_in(other, self),
            "__ge__": lambda: mine >= theirs and all_in(other, self),
        }[name]()
        return ConstantValue(outcome)

    def reconstruct(self, cg: Codegen) -> None:
        if self.mapping.cls is types.MappingProxyType:
            cg.call_method(self.mapping, self.kind)
        else:  # a subclass may have methods of these names
            cg.call_function(getattr(self.mapping.real, self.kind), self.mapping.whole)


MAKERS_OF_VIEWS.update({kind: partial(DictViewValue, kind=kind) for kind in ("keys", "values", "items")})
