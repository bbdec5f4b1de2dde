"""Built-in functions that ask about objects: types, attributes, identity, super()."""
from __future__ import annotations

import builtins
import contextlib
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit.guards.sources import static_lookup
from framejit.signals import LooksAtFrame, Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.builtins.instance_checks import is_instance, is_subclass
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.hashing import as_key, is_exact, real_call
from framejit.values.containers.sequence import TupleValue
from framejit.values.handlers import handles
from framejit.values.objects.classes import ClassValue, SuperValue, make_super
from framejit.values.objects.functions import MethodValue
from framejit.values.objects.user_object import ObjectValue, class_attribute

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_ABSENT = object()


@handles(isinstance)
def _isinstance(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _checked(tx, args, is_instance, args[0])


@handles(issubclass)
def _issubclass(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _checked(tx, args, is_subclass, tx.constants([args[0]])[0])


def _checked(tx: Frame, args: list[Value], check: Callable[[Frame, Any, Any], bool], what: Any) -> Value:
    try:
        return ConstantValue(check(tx, what, tx.constants([args[1]])[0]))
    except TypeError as e:
        raise tx.raised_from(e) from None


@handles(type)
def _type(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    from framejit.values.wrap import from_python

    if len(args) != 1:
        raise Unsupported("making a class", "FJ114")
    return from_python(args[0].python_type())


def _lookup_special(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """How ExitStack finds methods of context managers, from 3.15 on."""
    manager, name, default = args
    if manager.enters_natively:
        return manager.getattr(tx, name.constant())
    cls = manager.python_type()
    if static_lookup(cls, name.constant(), _ABSENT) is _ABSENT:
        return default
    return class_attribute(tx, manager, cls, name.constant())


if hasattr(contextlib, "_lookup_special"):
    handles(contextlib._lookup_special)(_lookup_special)


def attribute_name(value: Value) -> str:
    """The name of an attribute, given as an argument."""
    name = value.constant()
    if type(name) is not str:
        raise Unsupported("an attribute whose name is no plain string")
    return name


def attribute_or_none(tx: Frame, owner: Value, name: str) -> Value | None:
    """The attribute, or None where looking it up raises AttributeError."""
    try:
        with tx.catching():
            return realize(tx, owner.getattr(tx, name))
    except Raised as e:
        if issubclass(e.value.cls, AttributeError):
            return None
        raise


@handles(getattr)
def _getattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) < 3:
        return realize(tx, args[0].getattr(tx, attribute_name(args[1])))
    found = attribute_or_none(tx, args[0], attribute_name(args[1]))
    return args[2] if found is None else found


@handles(hasattr)
def _hasattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(attribute_or_none(tx, args[0], attribute_name(args[1])) is not None)


@handles(setattr)
def _setattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, attribute_name(args[1]), args[2])
    return NONE


@handles(delattr)
def _delattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, attribute_name(args[1]), None)
    return NONE


def _instance(args: list[Value], n: int) -> ObjectValue:
    """The object that a method of `object` is called on by name, with `n` arguments in all."""
    if len(args) != n or not isinstance(args[0], ObjectValue):
        raise Unsupported(f"a method of object, called on {args[0].describe()}" if args else "a method of object without one")
    return args[0]


@handles(object.__setattr__)
def _set_past_class(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _instance(args, 3).generic_setattr(tx, attribute_name(args[1]), args[2])
    return NONE


@handles(object.__delattr__)
def _delete_past_class(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _instance(args, 2).generic_setattr(tx, attribute_name(args[1]), None)
    return NONE


@handles(object.__getattribute__)
def _get_past_class(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _instance(args, 2).generic_getattr(tx, attribute_name(args[1]))


@handles(types.MethodType)
def _method(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MethodValue(args[0], args[1])


@handles(sys.exc_info)
def _exc_info(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    current = tx.current_exception()
    if is_none(current):
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([ClassValue(current.python_type()), current, current.getattr(tx, "__traceback__")])


@handles(sys.exception)
def _exception(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return tx.current_exception()


@handles(callable)
def _callable(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(static_lookup(args[0].python_type(), "__call__", None) is not None)


@handles(vars)
def _vars(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        raise LooksAtFrame("vars() looks at the running frame")
    return args[0].getattr(tx, "__dict__")


@handles(hash)
def _address(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = as_key(tx, args[0])
    if not is_exact(key):
        raise Unsupported("hash() of an object, which depends on its address", "FJ124")
    return ConstantValue(real_call(tx, hash, key, [], {}))


@handles(id)
def _id(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return IdValue(args[0])


class IdValue(Value):
    """`id(owner)`: a number that differs from run to run, so that all there is to know is whether two are equal."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def python_type(self) -> type:
        return int

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def call_method(self, tx: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__eq__", "__ne__") and isinstance(args[0], IdValue):
            return ConstantValue(tx.same(self.owner, args[0].owner) == (name == "__eq__"))
        raise Unsupported("the number id() gives, which differs from run to run", "FJ124")

    def truth(self, tx: Frame) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(id, lambda: cg.load(self.owner))


@handles(globals)
def _globals(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return tx.wrap(tx.globals, tx.globals_source())


@handles(locals, eval, exec, sys._getframe)
def _looks_at_frame(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise LooksAtFrame("a function that looks at the frame it is called from")


@handles(super)
def _super(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        if len(args) != 2:
            raise Unsupported("super() without an object")
        return make_super(args[0], args[1])
    cell = tx.cells.get("__class__")
    first = tx.code.co_varnames[0] if tx.code.co_varnames else None
    owner = None if first is None else tx.variable(first)
    if cell is None or not isinstance(cell.contents, ClassValue):
        contents = None if cell is None or cell.contents is None else realize(tx, cell.contents)
        if not isinstance(contents, ClassValue) or owner is None:
            raise Unsupported("super() outside a method")
        return SuperValue(contents.cls, owner)
    if owner is None:
        raise Unsupported("super() outside a method")
    return SuperValue(cell.contents.cls, owner)


@handles(typing.cast)
def _cast(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[1]


@handles(builtins.__build_class__)
def _build_class(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("a class statement", "FJ114", "define the class outside the compiled function")


@handles(builtins.__import__)
def _import(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("__import__()")
