"""The operator module."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import Source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, handles
from framejit.values.inspection import is_a
from framejit.values.objects.user_object import ObjectValue
from framejit.values.operators import BINARY, COMPARE
from framejit.values.runtime_numbers.read_number import negated
from framejit.values.wrap import from_python, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame


for _symbol, (_plain_op, _in_place_op, _name) in BINARY.items():
    HANDLERS[_plain_op] = functools.partial(lambda s, frame, a, k: frame.binary(s, a[0], a[1]), _symbol)
    HANDLERS[_in_place_op] = functools.partial(lambda s, frame, a, k: frame.binary(s, a[0], a[1], True), _symbol)
for _name, _function in COMPARE.items():
    HANDLERS[_function] = functools.partial(lambda n, frame, a, k: frame.compare(n, a[0], a[1]), _name)
HANDLERS[operator.getitem] = lambda frame, a, k: frame.subscript(a[0], a[1])
HANDLERS[operator.contains] = lambda frame, a, k: ConstantValue(frame.contains(a[0], a[1]))
HANDLERS[operator.not_] = lambda frame, a, k: negated(frame, a[0])
HANDLERS[operator.neg] = lambda frame, a, k: frame.unary("-", a[0])
HANDLERS[operator.is_] = lambda frame, a, k: ConstantValue(frame.same(a[0], a[1]))
HANDLERS[operator.pos] = lambda frame, a, k: frame.unary("+", a[0])
HANDLERS[operator.invert] = lambda frame, a, k: frame.unary("~", a[0])
HANDLERS[operator.is_not] = lambda frame, a, k: ConstantValue(not frame.same(a[0], a[1]))
HANDLERS[operator.delitem] = lambda frame, a, k: (
    frame.call_special(a[0], "__delitem__", a[1:], "doesn't support item deletion"),
    NONE,
)[1]
HANDLERS[operator.setitem] = lambda frame, a, k: (
    frame.call_special(a[0], "__setitem__", a[1:], "does not support item assignment"),
    NONE,
)[1]


@handles(operator.index)
def _index(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant():
        return fold(frame, operator.index, args, {})
    if issubclass(args[0].python_type(), int) and isinstance(args[0], ObjectValue):
        raise Unsupported(f"operator.index() of {args[0].describe()}", "FJ122")
    made = frame.call_special(args[0], "__index__", [], "cannot be interpreted as an integer")
    if made.python_type() is not int:
        raise Unsupported(f"__index__ that returns {made.describe()}", "FJ122")
    return made


class GetterValue(Value):
    """operator.attrgetter, itemgetter and methodcaller objects."""

    def __init__(self, kind: type, args: list[Value], kwargs: dict[str, Value], source: Source | None = None) -> None:
        self.kind, self.args, self.kwargs, self.source = kind, args, kwargs, source

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((*self.args, *self.kwargs.values()))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise Unsupported(f"operator.{self.kind.__name__} called with other than one argument", "FJ161")
        owner = realize(frame, args[0])
        if self.kind is operator.methodcaller:
            return frame.call(owner.getattr(frame, self.args[0].constant()), self.args[1:], self.kwargs)
        found: list[Value] = []
        for key in self.args:
            if self.kind is operator.itemgetter:
                found.append(frame.subscript(owner, key))
                continue
            value = owner
            for part in key.constant().split("."):
                value = realize(frame, value.getattr(frame, part))
            found.append(value)
        return found[0] if len(found) == 1 else TupleValue(found)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call(
            lambda: cg.em.load_object(self.kind),
            lambda: [cg.load(v) for v in (*self.args, *self.kwargs.values())],
            len(self.args) + len(self.kwargs),
            tuple(self.kwargs),
        )


def _getter(kind: type, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    names = args if kind is operator.attrgetter else args[:1] if kind is operator.methodcaller else []
    if not all(n.python_type() is str and n.is_constant() for n in names):
        raise Unsupported(f"operator.{kind.__name__} of a name that is no str", "FJ161")
    return GetterValue(kind, args, kwargs)


for _kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    HANDLERS[_kind] = functools.partial(_getter, _kind)


@wraps(operator.attrgetter, operator.itemgetter, operator.methodcaller)
def _existing_getter(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    capture.add_guard(source, native.C_ID, obj)
    function, args, *_ = obj.__reduce__()
    keywords: dict[str, Any] = {}
    if is_a(function, functools.partial):  # a methodcaller with keywords
        args, keywords = (*function.args, *args), function.keywords
    return GetterValue(
        type(obj), [from_python(a) for a in args], {k: from_python(v) for k, v in keywords.items()}, source
    )
