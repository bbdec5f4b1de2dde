"""Built-in functions that ask about objects: types, attributes, identity, super()."""
from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from framejit.guards.sources import static_lookup
from framejit.values.base import Value, realize
from framejit.values.classes import ClassValue, SuperValue
from framejit.values.constant import NONE, ConstantValue
from framejit.values.functions import MethodValue
from framejit.values.handlers import HANDLERS, handles
from framejit.values.mapping import HashedKey, as_key
from framejit.values.sequence import TupleValue
from framejit.values.signals import Raised, Unsupported
from framejit.values.tensor import TensorValue
from framejit.values.user_object import ObjectValue, class_attribute

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame


# Metaclasses of these modules check by the class alone, so that issubclass() answers.
_REAL_CHECKS = frozenset(("abc", "typing", "torch", "enum", "typing_extensions"))


@handles(isinstance)
def _isinstance(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, target = args[0].python_type(), tx.constants([args[1]])[0]
    for single in target if isinstance(target, tuple) else (target,):
        check = static_lookup(type(single), "__instancecheck__", None)
        if isinstance(check, types.FunctionType) and check.__module__.partition(".")[0] not in _REAL_CHECKS and not isinstance(args[0], TensorValue):
            if isinstance(target, tuple):
                raise Unsupported(f"isinstance() with several classes, of which {single.__qualname__} has its own check")
            return ConstantValue(cls is target or tx.truth(class_attribute(tx, args[1], type(target), "__instancecheck__").call(tx, [args[0]], {})))
    if isinstance(args[0], ObjectValue) and args[0].claims_another_class():
        raise Unsupported(f"isinstance() of {args[0].describe()}, which claims to be of another class")
    try:
        if issubclass(cls, torch.Tensor) and isinstance(args[0], TensorValue):
            return ConstantValue(_tensor_isinstance(args[0], target))
        return ConstantValue(issubclass(cls, target))
    except TypeError as e:
        raise tx.raised_from(e) from None


def _tensor_isinstance(value: TensorValue, target: Any) -> bool:
    if isinstance(target, (tuple, types.UnionType)):
        return any(_tensor_isinstance(value, t) for t in (target if isinstance(target, tuple) else target.__args__))
    if type(target).__instancecheck__ is type.__instancecheck__ or target in (torch.nn.Parameter, torch.nn.Buffer):
        return issubclass(value.cls, target)
    return isinstance(value.fake, target) if target.__module__ == "torch" and target is not torch.nn.Parameter else issubclass(value.cls, target)


@handles(type)
def _type(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    from framejit.values.wrap import from_python

    if len(args) != 1:
        raise Unsupported("making a class", "FJ114")
    return from_python(args[0].python_type())


@handles(getattr)
def _getattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) < 3:
        return realize(tx, args[0].getattr(tx, args[1].constant()))
    try:
        with tx.catching():
            return realize(tx, args[0].getattr(tx, args[1].constant()))
    except Raised as e:
        if issubclass(e.value.cls, AttributeError):
            return args[2]
        raise


@handles(hasattr)
def _hasattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        with tx.catching():
            args[0].getattr(tx, args[1].constant())
    except Raised as e:
        if issubclass(e.value.cls, AttributeError):
            return ConstantValue(False)
        raise
    return ConstantValue(True)


@handles(setattr)
def _setattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, args[1].constant(), args[2])
    return NONE


@handles(delattr)
def _delattr(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, args[1].constant(), None)
    return NONE


HANDLERS[object.__setattr__] = lambda tx, args, kwargs: (args[0].generic_setattr(tx, args[1].constant(), args[2]), NONE)[1]  # type: ignore[attr-defined]
HANDLERS[object.__delattr__] = lambda tx, args, kwargs: (args[0].generic_setattr(tx, args[1].constant(), None), NONE)[1]  # type: ignore[attr-defined]
HANDLERS[object.__getattribute__] = lambda tx, args, kwargs: args[0].generic_getattr(tx, args[1].constant())  # type: ignore[attr-defined]


@handles(types.MethodType)
def _method(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MethodValue(args[0], args[1])


@handles(sys.exc_info)
def _exc_info(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    current = tx.current_exception()
    if current is None:
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([ClassValue(current.python_type()), current, current.getattr(tx, "__traceback__")])


@handles(sys.exception)
def _exception(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return tx.current_exception() or NONE


@handles(callable)
def _callable(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(static_lookup(args[0].python_type(), "__call__", None) is not None)


@handles(vars)
def _vars(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        raise Unsupported("vars() of the running frame")
    return args[0].getattr(tx, "__dict__")


@handles(hash)
def _address(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = as_key(tx, args[0])
    if isinstance(key, Value) and not isinstance(key, HashedKey):
        raise Unsupported("hash() of an object, which depends on its address", "FJ124")
    return ConstantValue(hash(key))


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
    raise Unsupported("globals()", "FJ115")


@handles(super)
def _super(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        if not isinstance(args[0], ClassValue):
            raise Unsupported("super() of an unknown class")
        return SuperValue(args[0].cls, args[1])
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
