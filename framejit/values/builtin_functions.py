"""Built-in functions and constructors, on values.  `HANDLERS` maps the real callable to what it does here."""
from __future__ import annotations

import builtins
import collections
import copy
import functools
import itertools
import math
import operator
import types
import typing
from typing import TYPE_CHECKING, Any, Callable, Iterator

import torch

from framejit.guards.sources import Source, static_lookup
from framejit.values.base import Value, realize
from framejit.values.classes import ITERATOR_CLASSES, BuiltinNewValue, ClassValue, SuperValue
from framejit.values.constant import NONE, ConstantValue, SliceValue
from framejit.values.folding import fold
from framejit.values.functions import PartialValue
from framejit.values.iterators import CallIterator, IteratorValue, make_tool, sort_values
from framejit.values.mapping import DictValue, SetValue, as_key, pairs
from framejit.values.operators import BINARY, COMPARE
from framejit.values.sequence import ListValue, SequenceValue, TupleValue
from framejit.values.signals import Exhausted, Raised, Unsupported
from framejit.values.tensor import TensorValue
from framejit.values.user_object import InstanceDictValue, ObjectValue

if TYPE_CHECKING:
    from framejit.capture.codegen import Codegen
    from framejit.interpreter.frame import Frame

Handler = Callable[["Frame", list[Value], dict[str, Value]], Value]
HANDLERS: dict[Any, Handler] = {}

# Functions of these modules only compute from their arguments, so they run on constants as they are.
PURE_MODULES = ("math", "_operator", "operator", "cmath", "_struct", "binascii", "_bisect", "itertools", "_string", "unicodedata")
PURE_BUILTINS: tuple[Any, ...] = (abs, round, divmod, pow, chr, ord, bin, hex, oct, ascii, format, len, sum, min, max, hash, repr, issubclass, callable, math.prod, typing.get_origin, typing.get_args)


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for f in functions:
            HANDLERS[f] = handler
        return handler

    return register


class BuiltinValue(Value):
    """A function written in C, not torch's."""

    def __init__(self, function: Any, source: Source | None = None) -> None:
        self.function, self.source = function, source

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        module = getattr(self.function, "__module__", None)
        name = getattr(self.function, "__qualname__", repr(self.function))
        return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"

    def constant(self) -> Any:
        return self.function

    def proxy(self) -> Any:
        raise Unsupported(f"{self.describe()} as an argument of a tensor operation", "FJ120")

    def getattr(self, tx: "Frame", name: str) -> Value:
        from framejit.values.wrap import from_python

        try:
            return from_python(getattr(self.function, name))
        except AttributeError as e:
            raise tx.raised(AttributeError, str(e)) from None

    def call(self, tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
        function = self.function
        args, kwargs = [realize(tx, a) for a in args], {k: realize(tx, v) for k, v in kwargs.items()}
        try:
            handler = HANDLERS.get(function)
        except TypeError:
            handler = None
        if handler is not None:
            return handler(tx, args, kwargs)
        owner = getattr(function, "__self__", None)
        if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)) and args:
            return _unbound(tx, function, args, kwargs)
        if isinstance(function, types.BuiltinMethodType) and isinstance(owner, type) and owner in (dict, collections.OrderedDict, str, bytes, int, float, itertools.chain):
            return _class_method(tx, owner, function.__name__, args, kwargs)
        if function is object.__new__ or getattr(function, "__name__", "") == "__new__":
            return BuiltinNewValue().call(tx, args, kwargs)
        if getattr(function, "__module__", None) in PURE_MODULES or function in PURE_BUILTINS:
            return fold(tx, function, args, kwargs)
        raise Unsupported(f"{self.describe()} is written in C and framejit does not know what it does", "FJ110", _hint(function))

    def reconstruct(self, cg: "Codegen") -> None:
        cg.em.load_object(self.function)


def _hint(function: Any) -> str | None:
    if function is print:
        return "move the print out of the compiled function, or behind a debug flag"
    return "wrap the call in a function marked @framejit.disable to make the break deliberate"


def _unbound(tx: "Frame", function: Any, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`dict.get(d, key)`: a method taken from its class."""
    from framejit.values.builtin_methods import BuiltinMethodValue

    if isinstance(args[0], ObjectValue):
        return BuiltinMethodValue(args[0], function.__name__, function).call(tx, args[1:], kwargs)
    return args[0].call_method(tx, function.__name__, args[1:], kwargs)


def _class_method(tx: "Frame", owner: type, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if name == "fromkeys":
        value = args[1] if len(args) > 1 else NONE
        return DictValue({as_key(tx, k): value for k in tx.iterate(args[0])}, cls=owner)
    if name == "from_iterable":
        return make_tool(tx, itertools.chain, list(tx.iterate(args[0])), {})
    return fold(tx, getattr(owner, name), args, kwargs)


# ---- reflection ---------------------------------------------------------------------------------


@handles(isinstance)
def _isinstance(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    cls, target = args[0].python_type(), args[1].constant()
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
def _type(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    from framejit.values.wrap import from_python

    if len(args) != 1:
        raise Unsupported("making a class", "FJ114")
    return from_python(args[0].python_type())


@handles(getattr)
def _getattr(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
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
def _hasattr(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    try:
        with tx.catching():
            args[0].getattr(tx, args[1].constant())
    except Raised as e:
        if issubclass(e.value.cls, AttributeError):
            return ConstantValue(False)
        raise
    return ConstantValue(True)


@handles(setattr, object.__setattr__)
def _setattr(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, args[1].constant(), args[2])
    return NONE


@handles(delattr, object.__delattr__)
def _delattr(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    args[0].setattr(tx, args[1].constant(), None)
    return NONE


HANDLERS[object.__setattr__] = lambda tx, args, kwargs: (args[0].generic_setattr(tx, args[1].constant(), args[2]), NONE)[1]  # type: ignore[attr-defined]
HANDLERS[object.__getattribute__] = lambda tx, args, kwargs: args[0].generic_getattr(tx, args[1].constant())  # type: ignore[attr-defined]


@handles(callable)
def _callable(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(static_lookup(args[0].python_type(), "__call__", None) is not None)


@handles(vars)
def _vars(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        raise Unsupported("vars() of the running frame")
    return args[0].getattr(tx, "__dict__")


@handles(id, hash)
def _address(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant() and not isinstance(args[0], BuiltinValue):
        value = args[0].constant()
        if isinstance(value, (int, float)):
            return ConstantValue(hash(value))
    if isinstance(args[0], ObjectValue) and not isinstance(static_lookup(args[0].cls, "__hash__"), types.WrapperDescriptorType):
        return args[0].call_method(tx, "__hash__", [], {})
    raise Unsupported("id() or hash() of an object, which differs from run to run", "FJ124")


@handles(globals)
def _globals(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("globals()", "FJ115")


# ---- sizes, truth, conversion ---------------------------------------------------------------------


@handles(len)
def _len(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args[0].is_constant() and isinstance(args[0], ConstantValue):
        return fold(tx, len, args, {})
    if static_lookup(args[0].python_type(), "__len__", None) is None:
        raise tx.raised(TypeError, f"object of type {args[0].python_type().__name__!r} has no len()")
    return args[0].call_method(tx, "__len__", [], {})


def _special_or_fold(function: Any, method: str) -> Handler:
    def handler(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
        if isinstance(args[0], TensorValue):
            return tx.capture.graph.call(function, args, kwargs)
        if isinstance(args[0], ObjectValue):
            return args[0].call_method(tx, method, args[1:], {})
        return fold(tx, function, args, kwargs)

    return handler


HANDLERS.update({abs: _special_or_fold(abs, "__abs__"), round: _special_or_fold(round, "__round__"), reversed: lambda tx, a, k: make_tool(tx, reversed, a, k),
                 divmod: _special_or_fold(divmod, "__divmod__"), math.ceil: _special_or_fold(math.ceil, "__ceil__"), math.floor: _special_or_fold(math.floor, "__floor__")})


@handles(pow)
def _pow(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return tx.binary("**", *args) if len(args) == 2 else fold(tx, pow, args, kwargs)


@handles(repr, str, format, ascii)
def _text(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("text of a value that is not constant", "FJ125")


def text_of(tx: "Frame", function: Any, args: list[Value]) -> Value:
    """str(), repr() or format() of a value."""
    value = args[0] if args else ConstantValue("")
    if isinstance(value, ObjectValue):
        method = {"str": "__str__", "repr": "__repr__", "format": "__format__"}[function.__name__]
        found = static_lookup(value.cls, method)
        if method == "__str__" and found is object.__str__:
            method, found = "__repr__", static_lookup(value.cls, "__repr__")
        if isinstance(found, types.FunctionType) or issubclass(value.cls, BaseException):
            return value.call_method(tx, method, args[1:], {})
    if isinstance(value, (SequenceValue, DictValue, SetValue)) and function is not format or isinstance(value, SequenceValue):
        return ConstantValue(function(_plain(tx, value), *tx.constants(args[1:])))
    try:
        return fold(tx, function, args, {})
    except Unsupported:
        raise Unsupported(f"{function.__name__}() of {value.describe()}", "FJ125", "format it outside the compiled function") from None


def _plain(tx: "Frame", value: Value) -> Any:
    """A Python copy of containers of constants."""
    value = realize(tx, value)
    if isinstance(value, ListValue):
        return value.cls([_plain(tx, i) for i in value.items])
    if isinstance(value, TupleValue):
        return TupleValue([ConstantValue(_plain(tx, i)) for i in value.items], value.cls).constant()
    if isinstance(value, DictValue):
        return value.cls({k.constant() if isinstance(k, Value) else k: _plain(tx, v) for k, v in value.items.items()})
    if isinstance(value, SetValue):
        return value.cls([k.constant() if isinstance(k, Value) else k for k in value.items])
    return value.constant()


for _function in (repr, str, format):
    HANDLERS[_function] = functools.partial(lambda f, tx, a, k: text_of(tx, f, a), _function)


def construct_builtin(tx: "Frame", cls: Any, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Call a built-in class; None if `cls` is none of those known here."""
    if cls in HANDLERS:
        return HANDLERS[cls](tx, args, kwargs)
    if cls in ITERATOR_CLASSES:
        return make_tool(tx, cls, args, kwargs)
    return None


@handles(list)
def _list(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(list(tx.iterate(args[0])) if args else [])


@handles(tuple, torch.Size)
def _tuple(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args and isinstance(args[0], TupleValue) and args[0].cls is tuple:
        return args[0]
    return TupleValue(list(tx.iterate(args[0])) if args else [])


HANDLERS[torch.Size] = lambda tx, args, kwargs: TupleValue(list(tx.iterate(args[0])) if args else [], torch.Size)


@handles(dict, collections.OrderedDict)
def _dict(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return DictValue({**(pairs(tx, args[0]) if args else {}), **kwargs})


HANDLERS[collections.OrderedDict] = lambda tx, args, kwargs: DictValue({**(pairs(tx, args[0]) if args else {}), **kwargs}, cls=collections.OrderedDict)
HANDLERS[collections.defaultdict] = lambda tx, args, kwargs: DictValue({**(pairs(tx, args[1]) if len(args) > 1 else {}), **kwargs}, cls=collections.defaultdict, default_factory=args[0] if args else NONE)


@handles(collections.Counter)
def _counter(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    counts: dict[Any, Value] = {}
    if args and isinstance(args[0], DictValue):
        counts = dict(args[0].items)
    elif args:
        for item in tx.iterate(args[0]):
            key = as_key(tx, item)
            counts[key] = ConstantValue(counts.get(key, ConstantValue(0)).constant() + 1)
    return DictValue({**counts, **kwargs}, cls=collections.Counter)


@handles(set, frozenset)
def _set(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return SetValue(dict.fromkeys(as_key(tx, v) for v in tx.iterate(args[0])) if args else {})


HANDLERS[frozenset] = lambda tx, args, kwargs: SetValue(dict.fromkeys(as_key(tx, v) for v in tx.iterate(args[0])) if args else {}, cls=frozenset)


@handles(collections.deque)
def _deque(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    maxlen = (args[1] if len(args) > 1 else kwargs.get("maxlen", NONE)).constant()
    items = list(tx.iterate(args[0])) if args else []
    return ListValue(items[len(items) - maxlen :] if maxlen is not None and len(items) > maxlen else items, cls=collections.deque, maxlen=maxlen)


@handles(bool)
def _bool(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ConstantValue(tx.truth(args[0]) if args else False)


def _number(cls: type, method: str) -> Handler:
    def handler(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args and isinstance(args[0], (TensorValue, ObjectValue)):
            return args[0].call_method(tx, method, [], {})
        return fold(tx, cls, args, kwargs)

    return handler


HANDLERS.update({int: _number(int, "__int__"), float: _number(float, "__float__"), complex: _number(complex, "__complex__")})


@handles(slice)
def _slice(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = [NONE, args[0], NONE] if len(args) == 1 else [*args, NONE][:3]
    return ConstantValue(slice(*tx.constants(parts))) if all(p.is_constant() for p in parts) else SliceValue(list(parts))


@handles(object)
def _object(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ObjectValue(object)


@handles(super)
def _super(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
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


@handles(functools.partial)
def _partial(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return PartialValue(args[0], args[1:], dict(kwargs))


# ---- iteration --------------------------------------------------------------------------------------


@handles(iter)
def _iter(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return CallIterator(args[0], args[1]) if len(args) == 2 else tx.get_iter(args[0])


@handles(next)
def _next(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not isinstance(args[0], IteratorValue):
        if not (isinstance(args[0], ObjectValue) and static_lookup(args[0].cls, "__next__", None)):
            raise tx.raised(TypeError, f"{args[0].python_type().__name__!r} object is not an iterator")
        try:
            with tx.catching():
                return args[0].call_method(tx, "__next__", [], {})
        except Raised as e:
            if len(args) > 1 and issubclass(e.value.cls, StopIteration):
                return args[1]
            raise
    try:
        return tx.next(args[0])
    except Exhausted:
        if len(args) > 1:
            return args[1]
        raise tx.raised(StopIteration) from None


@handles(any, all)
def _any(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return _short_circuit(tx, args[0], True)


def _short_circuit(tx: "Frame", iterable: Value, stop: bool) -> Value:
    if isinstance(iterable, TensorValue):
        raise Unsupported("any() or all() over a tensor needs its data", "FJ106", "use tensor.any() or tensor.all() with torch.where")
    for item in tx.drain(tx.get_iter(iterable)):
        if tx.truth(item) == stop:
            return ConstantValue(stop)
    return ConstantValue(not stop)


HANDLERS[all] = lambda tx, args, kwargs: _short_circuit(tx, args[0], False)


@handles(sum)
def _sum(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    total = args[1] if len(args) > 1 else kwargs.get("start", ConstantValue(0))
    for item in tx.iterate(args[0]):
        total = tx.binary("+", total, realize(tx, item))
    return total


@handles(math.prod)
def _prod(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    total = kwargs.get("start", ConstantValue(1))
    for item in tx.iterate(args[0]):
        total = tx.binary("*", total, realize(tx, item))
    return total


def _extreme(name: str) -> Handler:
    def handler(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
        items = [realize(tx, i) for i in (tx.iterate(args[0]) if len(args) == 1 else args)]
        key = kwargs.get("key", NONE)
        if not items:
            if "default" in kwargs:
                return kwargs["default"]
            raise tx.raised(ValueError, f"{'max' if name == 'gt' else 'min'}() iterable argument is empty")
        plain = key.is_constant() and key.constant() is None
        best, best_key = items[0], items[0] if plain else realize(tx, tx.call(key, [items[0]], {}))
        for item in items[1:]:
            k = item if plain else realize(tx, tx.call(key, [item], {}))
            if tx.truth(tx.compare(name, k, best_key)):
                best, best_key = item, k
        return best

    return handler


HANDLERS.update({max: _extreme("gt"), min: _extreme("lt")})


@handles(sorted)
def _sorted(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return ListValue(sort_values(tx, list(tx.iterate(args[0])), kwargs))


@handles(functools.reduce)
def _reduce(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    items = list(tx.iterate(args[1]))
    if len(args) > 2:
        items.insert(0, args[2])
    if not items:
        raise tx.raised(TypeError, "reduce() of empty iterable with no initial value")
    total = items[0]
    for item in items[1:]:
        total = tx.call(args[0], [total, item], {})
    return total


# ---- the operator module ------------------------------------------------------------------------------

for _symbol, (_plain_op, _in_place_op, _name) in BINARY.items():
    HANDLERS[_plain_op] = functools.partial(lambda s, tx, a, k: tx.binary(s, a[0], a[1]), _symbol)
    HANDLERS[_in_place_op] = functools.partial(lambda s, tx, a, k: tx.binary(s, a[0], a[1], True), _symbol)
for _name, _function in COMPARE.items():
    HANDLERS[_function] = functools.partial(lambda n, tx, a, k: tx.compare(n, a[0], a[1]), _name)
HANDLERS[operator.getitem] = lambda tx, a, k: tx.subscript(a[0], a[1])
HANDLERS[operator.contains] = lambda tx, a, k: ConstantValue(tx.contains(a[0], a[1]))
HANDLERS[operator.not_] = lambda tx, a, k: ConstantValue(not tx.truth(a[0]))
HANDLERS[operator.truth] = HANDLERS[bool]
HANDLERS[operator.neg] = lambda tx, a, k: tx.unary("-", a[0])
HANDLERS[operator.is_] = lambda tx, a, k: ConstantValue(tx.same(a[0], a[1]))
HANDLERS[operator.index] = lambda tx, a, k: a[0] if a[0].is_constant() else a[0].call_method(tx, "__index__", [], {})
HANDLERS[operator.setitem] = lambda tx, a, k: (a[0].call_method(tx, "__setitem__", a[1:], {}), NONE)[1]


class GetterValue(Value):
    """operator.attrgetter, itemgetter and methodcaller objects."""

    def __init__(self, kind: type, args: list[Value], kwargs: dict[str, Value], source: Source | None = None) -> None:
        self.kind, self.args, self.kwargs, self.source = kind, args, kwargs, source

    def python_type(self) -> type:
        return self.kind

    def children(self) -> Iterator[Value]:
        return iter((*self.args, *self.kwargs.values()))

    def call(self, tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
        owner = realize(tx, args[0])
        if self.kind is operator.methodcaller:
            return owner.getattr(tx, self.args[0].constant()).call(tx, self.args[1:], self.kwargs)
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

    def reconstruct(self, cg: "Codegen") -> None:
        cg.em.call(lambda: cg.em.load_object(self.kind), lambda: [cg.load(v) for v in (*self.args, *self.kwargs.values())], len(self.args) + len(self.kwargs), tuple(self.kwargs))


for _kind in (operator.attrgetter, operator.itemgetter, operator.methodcaller):
    HANDLERS[_kind] = functools.partial(lambda c, tx, a, k: GetterValue(c, a, k), _kind)


@handles(copy.copy)
def _copy(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    value = args[0]
    if isinstance(value, (ListValue, DictValue, SetValue, InstanceDictValue)):
        return value.call_method(tx, "copy", [], {})
    if value.is_constant() or isinstance(value, TupleValue):
        return value
    raise Unsupported(f"copy.copy() of {value.describe()}")


@handles(copy.deepcopy)
def _deepcopy(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    if len(args) > 1 or kwargs:
        raise Unsupported("copy.deepcopy() with a memo")
    return _deep_copy(tx, args[0], {})


def _deep_copy(tx: "Frame", value: Value, memo: dict[int, Value]) -> Value:
    """A copy in the captured program: plain containers and plain instances, whose parts are copied in turn."""
    value = realize(tx, value)
    if id(value) in memo:
        return memo[id(value)]
    made: Value
    if value.is_constant():
        return value
    if isinstance(value, TupleValue):
        return TupleValue([_deep_copy(tx, i, memo) for i in value.items], value.cls)
    if isinstance(value, ListValue) and value.cls is list:
        memo[id(value)] = made = ListValue([])
        made.items = [_deep_copy(tx, i, memo) for i in value.items]
        return made
    if isinstance(value, InstanceDictValue):
        value = value.snapshot(tx)
    if isinstance(value, DictValue):
        memo[id(value)] = made = DictValue({}, None, value.cls, value.default_factory)
        made.items = {k: _deep_copy(tx, v, memo) for k, v in value.items.items()}
        return made
    if isinstance(value, SetValue):
        return SetValue(dict(value.items), None, value.cls)
    custom = ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__slots__")
    plain = isinstance(value, ObjectValue) and value.base is None and not issubclass(value.cls, (torch.nn.Module, BaseException))
    if plain and all(static_lookup(value.python_type(), n, None) in (None, getattr(object, n, None)) for n in custom):
        assert isinstance(value, ObjectValue)
        memo[id(value)] = made = ObjectValue(value.cls)
        items = realize(tx, value.getattr(tx, "__dict__"))
        assert isinstance(items, InstanceDictValue)
        made.attrs = {k: _deep_copy(tx, v, memo) for k, v in items.snapshot(tx).items.items()}
        return made
    raise Unsupported(f"copy.deepcopy() of {value.describe()}")


@handles(typing.cast)
def _cast(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    return args[1]


@handles(builtins.__import__)
def _import(tx: "Frame", args: list[Value], kwargs: dict[str, Value]) -> Value:
    raise Unsupported("__import__()")


