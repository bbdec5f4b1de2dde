"""Built-in functions that ask about objects: types, attributes, identity, super()."""
from __future__ import annotations

import _thread
import builtins
import contextlib
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import static_lookup
from framejit.signals import LooksAtFrame, Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_constant_object, is_none
from framejit.values.containers.hashing import ObjectKey, as_key, is_exact, real_call
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import handles
from framejit.values.hash_order import is_text
from framejit.values.objects.classes import ClassValue, SuperValue, make_super
from framejit.values.objects.functions.function_values import FunctionValue, MethodValue
from framejit.values.objects.instance_checks import is_instance, is_subclass, of_typing
from framejit.values.objects.user_object import ObjectValue, class_attribute
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_ABSENT = object()


@handles(isinstance)
def _isinstance(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _checked(frame, args, is_instance, args[0])


@handles(issubclass)
def _issubclass(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _checked(frame, args, is_subclass, frame.constants([args[0]])[0])


def _checked(frame: Frame, args: list[Value], check: Callable[[Frame, Any, Any], bool], what: Any) -> Value:
    try:
        return ConstantValue(check(frame, what, _asked_for(frame, args[1])))
    except TypeError as e:
        raise frame.raised_from(e) from None


def _asked_for(frame: Frame, value: Value) -> Any:
    """The class, or the several, that a check is to find: aliases of `typing`, too, which stay what they are."""
    value = realize(frame, value)
    if isinstance(value, TupleValue) and value.python_type() is tuple:
        return tuple(_asked_for(frame, item) for item in value.items)
    if isinstance(value, ObjectValue) and value.source is not None and not value.attrs and of_typing(value.obj):
        frame.capture.add_guard(value.source, native.C_ID, value.obj)
        return value.obj
    return frame.constants([value])[0]


@handles(type)
def _type(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) != 1 or kwargs:
        raise Unsupported("making a class", "FJ114")
    return from_python(args[0].python_type())


def _lookup_special(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """How ExitStack finds methods of context managers, from 3.15 on."""
    manager, name, default = args
    if manager.enters_natively:
        return manager.getattr(frame, name.constant())
    cls = manager.python_type()
    if static_lookup(cls, name.constant(), _ABSENT) is _ABSENT:
        return default
    return class_attribute(frame, manager, cls, name.constant())


if hasattr(contextlib, "_lookup_special"):
    handles(contextlib._lookup_special)(_lookup_special)


def attribute_name(value: Value) -> str:
    """The name of an attribute, given as an argument."""
    name = value.constant()
    if type(name) is not str:
        raise Unsupported("an attribute whose name is no plain string")
    return name


def attribute_or_none(frame: Frame, owner: Value, name: str) -> Value | None:
    """The attribute, or None where looking it up raises AttributeError."""
    try:
        with frame.catching():
            return realize(frame, owner.getattr(frame, name))
    except Raised as e:
        if issubclass(e.value.cls, AttributeError):
            return None
        raise


@handles(getattr)
def _getattr(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) < 3:
        return realize(frame, args[0].getattr(frame, attribute_name(args[1])))
    found = attribute_or_none(frame, args[0], attribute_name(args[1]))
    return args[2] if found is None else found


@handles(hasattr)
def _hasattr(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(attribute_or_none(frame, args[0], attribute_name(args[1])) is not None)


@handles(setattr)
def _setattr(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(frame, attribute_name(args[1]), args[2])
    return NONE


@handles(delattr)
def _delattr(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(frame, attribute_name(args[1]), None)
    return NONE


def _instance(args: list[Value], n: int) -> ObjectValue:
    """The object that a method of `object` is called on by name, with `n` arguments in all."""
    if len(args) != n or not isinstance(args[0], ObjectValue):
        raise Unsupported(
            f"a method of object, called on {args[0].describe()}" if args else "a method of object without one"
        )
    return args[0]


@handles(object.__setattr__)
def _set_past_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _instance(args, 3).generic_setattr(frame, attribute_name(args[1]), args[2])
    return NONE


@handles(object.__delattr__)
def _delete_past_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    _instance(args, 2).generic_setattr(frame, attribute_name(args[1]), None)
    return NONE


@handles(object.__getattribute__)
def _get_past_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _instance(args, 2).generic_getattr(frame, attribute_name(args[1]))


@handles(types.MethodType)
def _method(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return MethodValue(args[0], args[1])


@handles(sys.exc_info)
def _exc_info(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    current = frame.current_exception()
    if is_none(current):
        return TupleValue([NONE, NONE, NONE])
    return TupleValue([ClassValue(current.python_type()), current, current.getattr(frame, "__traceback__")])


@handles(sys.exception)
def _exception(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.current_exception()


@handles(callable)
def _callable(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(static_lookup(args[0].python_type(), "__call__", None) is not None)


@handles(vars)
def _vars(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        raise LooksAtFrame("vars() looks at the running frame")
    found = attribute_or_none(frame, args[0], "__dict__")
    if found is None:
        raise frame.raised(TypeError, "vars() argument must have __dict__ attribute")
    return found


@handles(hash)
def _hash(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    key = as_key(frame, args[0])
    if not is_exact(key):
        raise Unsupported("hash() of an object, which depends on its address", "FJ124")
    if is_text(key):
        frame.capture.assumed.depends_on_hashes()
    elif type(key) not in (int, float, complex, bool):
        frame.capture.assumed.holds_only_here("hash() is taken of an object")
    return ConstantValue(real_call(frame, hash, key, [], {}))


@handles(id)
def _id(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if _tells_apart_what_is_shown(frame):
        return ConstantValue(id(args[0].identity()))
    frame.capture.ids_taken = True
    return IdValue(args[0])


@handles(_thread.get_ident)
def _thread_number(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    return ConstantValue(_thread.get_ident()) if _tells_apart_what_is_shown(frame) else None


def _tells_apart_what_is_shown(frame: Frame) -> bool:
    """Whether a function of the standard library asks for numbers that tell apart what it is in the midst of a `repr`
    of, and in which thread. They are in its set no longer than that: any numbers do."""
    if frame.globals.get("__name__") not in ("dataclasses", "reprlib"):
        return False
    shown = frame.variable("repr_running")
    if shown is not None and frame.capture.real(shown):
        raise Unsupported("a repr() within one of the program's")
    return True


class IdValue(Value):
    """`id(owner)`: a number that differs from run to run, so that all there is to know is whether two are equal."""

    def __init__(self, owner: Value) -> None:
        self.owner = owner

    def python_type(self) -> type:
        return int

    def children(self) -> Iterator[Value]:
        return iter((self.owner,))

    def table_key(self, capture: Capture) -> ObjectKey:
        number = self.number(capture)
        return ObjectKey(
            capture, self, hash(id(self.owner.identity()) if number is None else number), (self.owner,), exact=False
        )

    def ids(self) -> Iterator[IdValue]:
        return iter((self,))

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name in ("__eq__", "__ne__") and isinstance(args[0], IdValue):
            return ConstantValue(frame.same(self.owner, args[0].owner) == (name == "__eq__"))
        if (
            name in ("__eq__", "__ne__")
            and args[0].python_type() is int
            and args[0].is_constant()
            and self.assume(frame.capture)
        ):
            return ConstantValue((self.number(frame.capture) == args[0].constant()) == (name == "__eq__"))
        raise Unsupported("the number id() gives, which differs from run to run", "FJ124")

    def number(self, capture: Capture) -> int | None:
        """The number itself, of an object that exists outside of the captured code."""
        if isinstance(self.owner, ConstantValue):
            return id(self.owner.constant()) if type(self.owner.constant()) in (bool, type(None)) else None
        obj = self.owner.constant() if isinstance(self.owner, (ClassValue, FunctionValue)) else capture.real(self.owner)
        return None if obj is None else id(obj)

    def assume(self, capture: Capture) -> bool:
        """Guard that the object is the one that it is now, so that the number is known; False for an object that
        captured code made."""
        if isinstance(self.owner, ConstantValue) and self.number(capture) is None:
            raise Unsupported(f"the number that id() gives of {self.owner.describe()}", "FJ124")
        obj = capture.real(self.owner)
        if obj is not None and self.owner.source is not None:
            capture.add_guard(self.owner.source, native.C_ID, obj)
        return self.number(capture) is not None

    def truth(self, frame: Frame) -> bool:
        return True

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(id, lambda: cg.load(self.owner))


@handles(globals)
def _globals(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return frame.wrap(frame.globals, frame.globals_source())


@handles(locals)
def _locals(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """The variables that are bound, in the order in which Python keeps them. Until 3.12 a frame has one dict, which
    each call brings up to date."""
    if not frame.whole or frame.resume is not None or frame.code.co_flags & inspect.CO_GENERATOR or args or kwargs:
        raise LooksAtFrame("locals(), called in another way than by a function of its own variables")
    names = dict.fromkeys((*frame.code.co_varnames, *frame.code.co_cellvars, *frame.code.co_freevars))
    bound = {name: value for name in names if (value := frame.variable(name)) is not None}
    if frame.shown is None or sys.version_info >= (3, 13):
        frame.shown = DictValue(dict(bound))
        return frame.shown
    for name in names:
        if name in bound:
            frame.shown.call_method(frame, "__setitem__", [ConstantValue(name), bound[name]], {})
        elif name in frame.shown.items:
            frame.shown.call_method(frame, "__delitem__", [ConstantValue(name)], {})
    return frame.shown


@handles(eval)
def _eval(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """An expression of constants alone, which speaks of no frame."""
    text = args[0].constant() if len(args) == 1 and not kwargs and args[0].is_constant() else None
    found = _evaluated(text) if type(text) is str else None
    if found is None:
        raise LooksAtFrame("eval() of more than constants")
    return from_python(found)


def _evaluated(text: str) -> Any:
    """What an expression of numbers and text gives; None for all else, and for what raises or warns."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            code = compile(text.lstrip(" \t"), "<string>", "eval")
            plain = not code.co_names and all(is_constant_object(constant) for constant in code.co_consts)
            found = eval(code, {"__builtins__": {}}) if plain and len(text) < _LONGEST_TEXT else None
    except Exception:
        return None
    return found if is_constant_object(found) else None


_LONGEST_TEXT = 1000


@handles(exec, sys._getframe)
def _looks_at_frame(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise LooksAtFrame("a function that looks at the frame it is called from")


@handles(super)
def _super(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args:
        if len(args) != 2:
            raise Unsupported("super() without an object")
        return make_super(args[0], args[1])
    cell = frame.cells.get("__class__")
    first = frame.code.co_varnames[0] if frame.code.co_varnames else None
    owner = None if first is None else frame.variable(first)
    if cell is None or not isinstance(cell.contents, ClassValue):
        contents = None if cell is None or cell.contents is None else realize(frame, cell.contents)
        if not isinstance(contents, ClassValue) or owner is None:
            raise LooksAtFrame("super() outside a method")
        return SuperValue(contents.cls, owner)
    if owner is None:
        raise LooksAtFrame("super() outside a method")
    return SuperValue(cell.contents.cls, owner)


@handles(typing.cast)
def _cast(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[1]


@handles(builtins.__build_class__)
def _build_class(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("a class statement", "FJ114", "define the class outside the compiled function")


@handles(builtins.__import__)
def _import(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("__import__()")
