"""The operator module."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import TYPE_CHECKING

from framejit.guards.sources import Source
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.sequence import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import HANDLERS, handles
from framejit.values.objects.user_object import ObjectValue
from framejit.values.operators import BINARY, COMPARE

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


for _symbol, (_plain_op, _in_place_op, _name) in BINARY.items():
    HANDLERS[_plain_op] = functools.partial(lambda s, tx, a, k: tx.binary(s, a[0], a[1]), _symbol)
    HANDLERS[_in_place_op] = functools.partial(lambda s, tx, a, k: tx.binary(s, a[0], a[1], True), _symbol)
for _name, _function in COMPARE.items():
    HANDLERS[_function] = functools.partial(lambda n, tx, a, k: tx.compare(n, a[0], a[1]), _name)
HANDLERS[operator.getitem] = lambda tx, a, k: tx.subscript(a[0], a[1])
HANDLERS[operator.contains] = lambda tx, a, k: ConstantValue(tx.contains(a[0], a[1]))
HANDLERS[operator.not_] = lambda tx, a, k: ConstantValue(not tx.truth(a[0]))
HANDLERS[operator.neg] = lambda tx, a, k: tx.unary("-", a[0])
HANDLERS[operator.is_] = lambda tx, a, k: ConstantValue(tx.same(a[0], a[1]))
HANDLERS[operator.pos] = lambda tx, a, k: tx.unary("+", a[0])
HANDLERS[operator.invert] = lambda tx, a, k: tx.unary("~", a[0])
HANDLERS[operator.is_not] = lambda tx, a, k: ConstantValue(not tx.same(a[0], a[1]))
HANDLERS[operator.delitem] = lambda tx, a, k: (tx.call_special(a[0], "__delitem__", a[1:], "doesn't support item deletion"), NONE)[1]
HANDLERS[operator.setitem] = lambda tx, a, k: (tx.call_special(a[0], "__setitem__", a[1:], "does not support item assignment"), NONE)[1]


@handles(operator.index)
def _index(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant():
        return fold(tx, operator.index, args, {})
    if issubclass(args[0].python_type(), int) and isinstance(args[0], ObjectValue):
        raise Unsupported(f"operator.index() of {args[0].describe()}", "FJ122")
    made = tx.call_special(args[0], "__index__", [], "cannot be interpreted as an integer")
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

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if len(args) != 1 or kwargs:
            raise Unsupported(f"operator.{self.kind.__name__} called with other than one argument", "FJ161")
        owner = realize(tx, args[0])
        if self.kind is operator.methodcaller:
            return tx.call(owner.getattr(tx, self.args[0].constant()), self.args[1:], self.kwargs)
        found: list[Value] = []
        for key in self.args:
            if self.kind is operator.itemgetter:
                found.append(tx.subscript(owner, key))
                continue
            value = owner
            for part in key.constant().split("."):
                value = realize(tx, value.getattr(tx, part))
            found.append(value)
        return found[0] if len(found) == 1 else TupleValue(found)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call(
            lambda: cg.em.load_object(self.kind),
            lambda: [cg.load(v) for v in (*self.args, *self.kwargs.values())],
            len(self.args) + len(self.kwargs),
            tuple(self.kwargs),
        )


def _getter(kind: type, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    names = args if kind is operator.attrgetter else args[:1] if kind is operator.methodcaller else []
    if not all(n.python_type() is str and n.is_constant() for n in names):
        raise Unsupported(f"operator.{kind.__name__} of a name that is no str", "FJ161")
    return GetterValue(kind, args, kwargs)


for _kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    HANDLERS[_kind] = functools.partial(_getter, _kind)
