"""Python functions, bound methods, partials, and the cells closures share."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.guards.sources import (
    AttrSource,
    CellContentsSource,
    IndexSource,
    Source,
    TypeLookupSource,
    const_source,
    key_source,
    static_lookup,
)
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.hashing import ObjectKey
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS, NativeMethodValue, looked_up_handler
from framejit.values.inspection import is_a, qualified_name
from framejit.values.lazy import LazyValue, wrap_attribute
from framejit.values.wrap import from_python, makes, wrap, wraps

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_ASKS_MODES = frozenset("has_torch_function has_torch_function_unary has_torch_function_variadic".split())


class CellValue(Value):
    """A cell: what it holds now (None when empty), and the real cell if there is one."""

    mutable = True

    def __init__(self, contents: Value | None, source: Source | None = None) -> None:
        self.contents, self.source = contents, source

    def python_type(self) -> type:
        return types.CellType

    def children(self) -> Iterator[Value]:
        return iter(()) if self.contents is None else iter((self.contents,))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name != "cell_contents":
            return super().getattr(frame, name)
        if self.contents is None:
            raise frame.raised(ValueError, "Cell is empty")
        return self.contents

    def set(self, frame: Frame, value: Value | None) -> None:
        frame.capture.effects.changed(self)
        self.contents = value

    def reconstruct(self, cg: Codegen) -> None:
        # Contents are filled by replay: a function in the cell may refer to the cell itself.
        cg.em.call_object(types.CellType, lambda: None, 0)
        cg.capture.effects.changed(self)

    def replay(self, cg: Codegen) -> None:
        if self.contents is None:
            cg.load(self)
            cg.em.op("DELETE_ATTR", "cell_contents")
            return
        cg.load(self.contents)
        cg.load(self)
        cg.em.store_attr("cell_contents")


class CallableValue(Value):
    """A Python function, existing or made by captured code: binds arguments and is inlined. The base class of both."""

    code: CodeType
    globals: dict[str, Any]

    def defaults(self, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        raise NotImplementedError

    def closure(self, frame: Frame) -> list[CellValue]:
        raise NotImplementedError

    def python_type(self) -> type:
        return FunctionType

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return frame.inline(self, bind(frame, self, args, kwargs))

    def globals_source(self) -> Source | None:
        """Where the function's globals are, when they are not those of the running frame."""
        return None


def bind(frame: Frame, fn: CallableValue, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
    """Arguments to parameters, as Python would; Unsupported where Python would raise (it then does, for real)."""
    code, name = fn.code, fn.code.co_qualname
    n_pos, n_kw = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    positional, keyword_only = names[:n_pos], names[n_pos : n_pos + n_kw]
    rest = n_pos + n_kw
    bound = dict(zip(positional, args))
    if code.co_flags & 4:
        bound[names[rest]] = TupleValue(args[n_pos:])
        rest += 1
    elif len(args) > n_pos:
        raise Unsupported(f"{name}() takes {n_pos} positional arguments but {len(args)} were given", "FJ112")
    extra: dict[Any, Value] = {}
    accepts = set(positional[code.co_posonlyargcount :]) | set(keyword_only)
    for key, value in kwargs.items():
        if key in accepts:
            if key in bound:
                raise Unsupported(f"{name}() got multiple values for argument {key!r}", "FJ112")
            bound[key] = value
        elif code.co_flags & 8:
            extra[key] = value
        else:
            raise Unsupported(f"{name}() got an unexpected keyword argument {key!r}", "FJ112")
    if code.co_flags & 8:
        bound[names[rest]] = DictValue(extra)
    if any(p not in bound for p in (*positional, *keyword_only)):
        defaults, kw_defaults = fn.defaults(frame)
        for key, value in zip(positional[n_pos - len(defaults) :], defaults):
            bound.setdefault(key, value)
        for key in keyword_only:
            if key not in bound and key in kw_defaults:
                bound[key] = kw_defaults[key]
    missing = [p for p in (*positional, *keyword_only) if p not in bound]
    if missing:
        raise Unsupported(f"{name}() missing required argument {missing[0]!r}", "FJ112")
    return bound


@functools.lru_cache(None)
def _is_library(filename: str) -> bool:
    """Whether a file belongs to the standard library or an installed package."""
    paths = sysconfig.get_paths()
    return filename.startswith("<frozen ") or any(
        filename.startswith(paths[p] + os.sep) for p in ("stdlib", "purelib", "platlib")
    )


_COMPUTED = frozenset(
    (
        "__wrapped__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__code__",
        "__globals__",
        "__dict__",
        "__annotations__",
        "__annotate__",
        "__type_params__",
    )
)
"""Attributes that functions keep beside their `__dict__`, and that captured code may read."""


class FunctionValue(CallableValue):
    """A function that exists outside the trace.

    With `capture`, only its code is guarded so far; asking for the very function guards that too.
    """

    source: Source

    def __init__(self, fn: FunctionType, source: Source, capture: Capture | None = None) -> None:
        self.fn, self.source, self.capture = fn, source, capture
        self.code, self.globals = fn.__code__, fn.__globals__

    def describe(self) -> str:
        return f"function {self.fn.__module__}.{self.fn.__qualname__}"

    def constant(self) -> Any:
        if self.capture is not None:
            self.capture.add_guard(self.source, native.C_ID, self.fn)
        return self.fn

    def is_constant(self) -> bool:
        return True

    @property
    def is_one_of_many(self) -> bool:  # type: ignore[override]
        return self.capture is not None

    def proxy(self) -> Any:
        raise Unsupported(f"{self.describe()} can't be an argument of a tensor operation", "FJ120")

    def defaults(self, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        where, kw_where = AttrSource(self.source, "__defaults__"), AttrSource(self.source, "__kwdefaults__")
        if self.fn.__defaults__ is not None:
            # of how many parameters they are the defaults
            frame.capture.add_guard(where, native.C_LEN, len(self.fn.__defaults__))
        positional: list[Value] = [
            LazyValue(d, IndexSource(where, i)) for i, d in enumerate(self.fn.__defaults__ or ())
        ]
        keyword: dict[str, Value] = {
            k: LazyValue(d, key_source(kw_where, k)) for k, d in (self.fn.__kwdefaults__ or {}).items()
        }
        return positional, keyword

    def closure(self, frame: Frame) -> list[CellValue]:
        if not _is_library(self.code.co_filename):  # nobody swaps the code of an installed function
            frame.capture.add_guard(AttrSource(self.source, "__code__"), native.C_ID, self.code)
        where = AttrSource(self.source, "__closure__")
        cells = []
        for i, (name, cell) in enumerate(zip(self.code.co_freevars, self.fn.__closure__ or ())):
            cells.append(frame.capture.cell(cell, IndexSource(where, i), name))
        return cells

    def globals_source(self) -> Source | None:
        return AttrSource(self.source, "__globals__")

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = self.handled(frame, args, kwargs)
        return super().call(frame, args, kwargs) if made is None else made

    def handled(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
        """The result of the call where a handler stands for inlining it; None where there is none, or it declines."""
        handler = HANDLERS.get(self.fn)
        if handler is not None and frame.capture.overrides.modes and not _ASKS_MODES.isdisjoint(self.code.co_names):
            raise Unsupported(f"{self.fn.__name__}() under a function mode", "FJ141")
        handler = handler or looked_up_handler(self.fn)
        if handler is None:
            return None
        return handler(frame, [realize(frame, a) for a in args], {k: realize(frame, v) for k, v in kwargs.items()})

    def getattr(self, frame: Frame, name: str) -> Value:
        overlay = frame.capture.effects.attribute(self.fn, name)
        if overlay is not None:
            return overlay
        if name in ("__name__", "__qualname__", "__module__", "__doc__"):
            return self._told(frame, name)
        if name == "__class__":
            return from_python(FunctionType)
        if name == "__get__":
            return BoundGetValue(self)
        if name == "__dict__":
            frame.capture.effects.show_namespace(self.fn.__dict__)
        own = self._seen_namespace(frame)
        if own is not None and name in own.items:
            return own.items[name]
        if _is_method(name):
            return super().getattr(frame, name)
        if own is not None and not is_special(name):
            raise frame.raised(AttributeError, f"'function' object has no attribute {name!r}")
        try:
            value = getattr(self.fn, name)
        except AttributeError as e:
            frame.capture.guard_no_attribute(self.source, name)
            raise frame.raised(AttributeError, str(e)) from None
        except Exception as e:  # annotations that can't be evaluated
            raise Unsupported(
                f"attribute {name!r} of {self.describe()}, reading which raises {type(e).__name__}"
            ) from None
        if name in self.fn.__dict__:
            return wrap_attribute(value, self.source, name)
        if name in _COMPUTED:
            return wrap_attribute(value, self.source, name)
        raise Unsupported(f"attribute {name!r} of {self.describe()}")

    def _told(self, frame: Frame, name: str) -> Value:
        """What the function says of itself, which the program may change."""
        told = getattr(self.fn, name)
        if str(self.fn.__globals__.get("__name__")).partition(".")[0] == "torch":  # whose functions stay as they are
            return from_python(told)
        source = AttrSource(self.source or const_source(self.fn), name)
        if type(told) is not str:
            return frame.wrap(told, source)
        frame.capture.add_guard(source, native.C_EQUALS, told)
        return from_python(told)

    def _seen_namespace(self, frame: Frame) -> DictValue | None:
        """The function's `__dict__`, if the program looked at it as a dict."""
        own = frame.capture.known(self.fn.__dict__)
        return own if isinstance(own, DictValue) else None

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if is_special(name):
            raise Unsupported(f"changing {name} of {self.describe()}")
        own = self._seen_namespace(frame)
        if own is not None:
            change_item(frame, own, name, value, self.describe())
            return
        if value is None and name not in self.fn.__dict__:
            raise Unsupported(f"deleting attribute {name!r} of {self.describe()}, which may have none")
        frame.capture.effects.set_attribute(self, self.fn, name, value)


def _docstring(code: CodeType) -> str | None:
    """The first constant; from 3.14 on a flag says whether it is one, or any text that the code begins with."""
    first = code.co_consts[0] if code.co_consts else None
    if sys.version_info >= (3, 14) and not code.co_flags & _HAS_DOCSTRING:
        return None
    return first if isinstance(first, str) else None


_HAS_DOCSTRING = 0x4000000  # CO_HAS_DOCSTRING


def is_special(name: str) -> bool:
    """Whether Python itself keeps or computes this attribute of functions."""
    return static_lookup(FunctionType, name, None) is not None


class NestedFunctionValue(CallableValue):
    """A function made by the captured code (def, lambda, comprehension)."""

    mutable = True

    def __init__(
        self,
        code: CodeType,
        globals: dict[str, Any],
        globals_from: Source | None,
        positional: Value | None,
        keyword: DictValue | None,
        cells: list[CellValue],
        annotations: DictValue | None,
    ) -> None:
        self.code, self.globals, self._globals_from = code, globals, globals_from
        self.positional, self.keyword, self.cells, self.annotations = positional, keyword, cells, annotations
        self.annotate: Value | None = None  # from 3.14 on: what computes the annotations when they are asked for
        self.attributes: dict[str, Value] = {}  # those that Python treats specially, where they were written
        self.namespace = DictValue({})

    def describe(self) -> str:
        return f"function {self.code.co_qualname}"

    def children(self) -> Iterator[Value]:
        yield from (v for v in (self.positional, self.keyword, self.annotations, self.annotate) if v is not None)
        yield from self.cells
        yield from self.attributes.values()
        yield self.namespace

    def defaults(self, frame: Frame) -> tuple[list[Value], dict[str, Value]]:
        return list(frame.iterate(self.positional)) if self.positional else [], dict(
            self.keyword.items
        ) if self.keyword else {}

    def closure(self, frame: Frame) -> list[CellValue]:
        return self.cells

    def globals_source(self) -> Source | None:
        return self._globals_from

    def getattr(self, frame: Frame, name: str) -> Value:
        if name in self.attributes:
            return self.attributes[name]
        if name == "__name__":
            return ConstantValue(self.code.co_name)
        if name == "__qualname__":
            return ConstantValue(self.code.co_qualname)
        if name == "__module__":
            return ConstantValue(self.globals.get("__name__"))
        if name == "__doc__":
            return ConstantValue(_docstring(self.code))
        if name == "__dict__":
            return self.namespace
        if name == "__defaults__":
            return self.positional or NONE
        if name == "__get__":
            return BoundGetValue(self)
        if name == "__kwdefaults__":
            return self.keyword or NONE
        if name == "__class__":
            return from_python(FunctionType)
        if name == "__code__":
            return from_python(self.code)
        if name == "__closure__":
            return TupleValue(list(self.cells)) if self.cells else NONE
        if name == "__annotate__" and is_special(name):
            return self.annotate or NONE
        if name == "__annotations__":
            if self.annotate is not None:
                raise Unsupported(
                    f"annotations of {self.describe()}, which was made here and computes them when they are asked for"
                )
            self.annotations = self.annotations or DictValue({})
            return self.annotations
        if name == "__type_params__" and is_special(name):
            return TupleValue([])
        if name in self.namespace.items:
            return self.namespace.items[name]
        if _is_method(name):
            return super().getattr(frame, name)
        if is_special(name):
            raise Unsupported(f"attribute {name!r} of {self.describe()}")
        raise frame.raised(AttributeError, f"'function' object has no attribute {name!r}")

    def setattr(self, frame: Frame, name: str, value: Value | None) -> None:
        if not is_special(name):
            change_item(frame, self.namespace, name, value, self.describe())
            return
        if value is None:
            raise Unsupported("deleting an attribute of a function")
        value = realize(frame, value) if is_special(name) else value
        frame.capture.effects.altered(self)
        if name == "__defaults__" and (is_none(value) or isinstance(value, TupleValue) and value.cls is tuple):
            self.positional = None if is_none(value) else value
        elif name == "__kwdefaults__" and (is_none(value) or isinstance(value, DictValue) and value.cls is dict):
            self.keyword = value if isinstance(value, DictValue) else None
        elif name in ("__name__", "__qualname__") and value.python_type() is str or name in ("__doc__", "__module__"):
            self.attributes[name] = value
        elif name == "__dict__" and isinstance(value, DictValue) and value.cls is dict:
            self.namespace = value
        elif name == "__annotations__" and isinstance(value, DictValue) and value.cls is dict:
            self.annotations, self.annotate = value, None
        elif name == "__code__" and isinstance(value, CodeValue) and value.differs_in_names(self.code):
            names = {"__name__": self.code.co_name, "__qualname__": self.code.co_qualname}  # which the function keeps
            self.attributes = {key: ConstantValue(text) for key, text in names.items()} | self.attributes
            self.code = value.code
        elif name == "__annotate__":
            self.annotations, self.annotate = (self.annotations, None) if is_none(value) else (None, value)
        elif name != "__type_params__" or not value.is_constant() or value.constant() != ():  # it has none
            raise Unsupported(f"changing {name} of {self.describe()}")

    def reconstruct(self, cg: Codegen) -> None:
        em, parts = (
            cg.em,
            [
                self.positional, self.keyword, TupleValue(list(self.cells)) if self.cells else None, self.annotations,
                self.annotate,
            ],
        )

        def load() -> None:
            em.load_object(self.code)
            cg.load_globals(self.globals)
            for part in parts:
                cg.load(part if part is not None else NONE)

        em.call_object(make_function, load, 7)
        cg.capture.effects.changed(self)  # replay fills in the attributes, which may lead back to the function

    def replay(self, cg: Codegen) -> None:
        named = dict(self.attributes)
        if self.namespace.items or cg.is_kept(self.namespace):
            named["__dict__"] = self.namespace
        for name, value in named.items():
            cg.load(value)
            cg.load(self)
            cg.em.store_attr(name)


def _is_method(name: str) -> bool:
    """Whether functions have a method of this name, which is no attribute of their own."""
    return is_a(static_lookup(FunctionType, name, None), (types.WrapperDescriptorType, types.MethodDescriptorType))


def change_item(frame: Frame, namespace: DictValue, name: str, value: Value | None, whose: str) -> None:
    """Set or delete what a namespace holds under `name`."""
    if value is not None:
        namespace.call_method(frame, "__setitem__", [ConstantValue(name), value], {})
    elif name in namespace.items:
        namespace.call_method(frame, "__delitem__", [ConstantValue(name)], {})
    else:
        raise Unsupported(f"deleting attribute {name!r} of {whose}, which has none", "FJ161")


def make_function(
    code: CodeType, globals: dict[str, Any], defaults: Any, kwdefaults: Any, closure: Any,
    annotations: dict[str, Any] | None, annotate: Any
) -> FunctionType:
    fn = FunctionType(code, globals, code.co_name, defaults, closure)
    fn.__qualname__ = code.co_qualname
    fn.__kwdefaults__ = kwdefaults
    if annotations is not None:
        fn.__annotations__ = annotations
    if annotate is not None:
        fn.__annotate__ = annotate  # type: ignore[attr-defined]
    return fn


class BoundGetValue(Value):
    """`function.__get__`."""

    def __init__(self, function: Value) -> None:
        self.function = function

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if args[0].is_constant() and args[0].constant() is None:
            return self.function
        return MethodValue(self.function, args[0])


class MethodValue(Value):
    """A callable bound to its first argument."""

    mutable = True

    def __init__(self, function: Value, owner: Value, source: Source | None = None) -> None:
        self.function, self.owner, self.source = function, owner, source

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method {self.function.describe().removeprefix('function ')}"

    def table_key(self, capture: Capture) -> ObjectKey:
        return ObjectKey(
            capture, self, hash((id(self.owner.identity()), id(self.function))), (self.owner,), exact=False
        )

    def children(self) -> Iterator[Value]:
        return iter((self.function, self.owner))

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.function.call(frame, [self.owner, *args], kwargs)

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__get__":
            return self  # bound once and for all
        if name not in ("__eq__", "__ne__") or len(args) != 1:
            return super().call_method(frame, name, args, kwargs)
        other = args[0]
        if not isinstance(other, MethodValue):
            return ConstantValue(NotImplemented)
        equal = frame.equal(self.function, other.function) and frame.same(self.owner, other.owner)
        return ConstantValue(equal == (name == "__eq__"))

    def getattr(self, frame: Frame, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__func__":
            return self.function
        if name != "__doc__" and static_lookup(types.MethodType, name, None) is not None:
            return super().getattr(frame, name)
        return self.function.getattr(frame, name)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(types.MethodType, lambda: (cg.load(self.function), cg.load(self.owner)), 2)


# What torch wraps around its own functions to keep Dynamo out of them; here they are looked through.
_DYNAMO_WRAPPERS = {
    "_disable_dynamo.<locals>.inner": "__wrapped__",
    "DisableContext.__call__.<locals>._fn": "_torchdynamo_orig_callable",
}
_UNDER_DYNAMO_SETTING = "wrap_dunder_call_ctx_manager.<locals>.inner"
_TORCH = os.path.dirname(torch.__file__)


@wraps(FunctionType)
def _existing_function(capture: Capture, obj: FunctionType, source: Source) -> Value:
    if obj.__code__.co_qualname == _UNDER_DYNAMO_SETTING and obj.__code__.co_filename.startswith(_TORCH):
        # a setting of Dynamo's is entered around the call; nobody writes into the closure
        capture.add_guard(source, native.C_ID, obj)
        at = obj.__code__.co_freevars.index("func")
        cell = IndexSource(AttrSource(source, "__closure__"), at)
        assert obj.__closure__ is not None
        return wrap(capture, obj.__closure__[at].cell_contents, CellContentsSource(cell))
    inner = _DYNAMO_WRAPPERS.get(obj.__code__.co_qualname)
    if (
        inner is not None
        and obj.__code__.co_filename.startswith(_TORCH)
        and inner in obj.__dict__
        and (getattr(obj.__dict__[inner], "__module__", None) or "").startswith("torch.")
    ):
        capture.add_guard(source, native.C_ID, obj)
        return wrap(capture, obj.__dict__[inner], AttrSource(source, inner))
    if "<locals>" in obj.__qualname__ and not hasattr(obj, "_framejit_resume"):
        # Made anew by each call of what defines it: the same code with other cells and defaults, which are read from
        # it.
        capture.add_guard(source, native.C_TYPE, FunctionType)
        capture.add_guard(AttrSource(source, "__code__"), native.C_ID, obj.__code__)
        capture.add_guard(AttrSource(source, "__globals__"), native.C_ID, obj.__globals__)
        return FunctionValue(obj, source, capture)
    capture.add_guard(source, native.C_ID, obj)
    return FunctionValue(obj, source)


@makes(FunctionType)
def _made_function(obj: FunctionType) -> Value:
    return FunctionValue(obj, const_source(obj))


@wraps(types.MethodType)
def _existing_method(capture: Capture, obj: types.MethodType, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, types.MethodType)
    if type(obj.__func__) is native.Dispatcher and obj.__func__.follow:
        return _call_of_object(capture, obj, source)
    return MethodValue(
        wrap(capture, obj.__func__, AttrSource(source, "__func__")),
        wrap(capture, obj.__self__, AttrSource(source, "__self__")),
        source,
    )


def _call_of_object(capture: Capture, obj: types.MethodType, source: Source) -> Value:
    """What stands for calls of an object, an optimized module for one: what its class has as `__call__` by now."""
    cls, owner = type(obj.__self__), AttrSource(source, "__self__")
    call = static_lookup(cls, "__call__")
    if not is_a(call, types.FunctionType) and not isinstance(call, native.Dispatcher):
        raise Unsupported(f"a call of {qualified_name(cls)}, whose __call__ is a {qualified_name(type(call))}")
    capture.add_guard(AttrSource(source, "__func__"), native.C_ID, obj.__func__)
    capture.add_guard(owner, native.C_TYPE, cls)
    function = wrap(capture, call, TypeLookupSource(const_source(cls), "__call__"))
    return MethodValue(function, wrap(capture, obj.__self__, owner), source)


@wraps(native.Dispatcher, subclasses=True)
def _optimized_function(capture: Capture, obj: Any, source: Source) -> Value:
    """An optimized function is looked through where captured code calls it, and stays itself where it is handed on."""
    capture.add_guard(source, native.C_ID, obj)
    function = wrap(capture, obj.function, AttrSource(source, "function"))
    return FunctionValue(obj.function, source) if type(function) is FunctionValue else function


@wraps(types.CellType)
def _existing_cell(capture: Capture, obj: types.CellType, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, types.CellType)
    return capture.cell(obj, source, source.name())


_NAMES_OF_CODE: Final = frozenset(("co_name", "co_qualname"))


class CodeValue(Value):
    """A code object among a function's constants."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code

    def python_type(self) -> type:
        return types.CodeType

    def constant(self) -> Any:
        return self.code

    def getattr(self, frame: Frame, name: str) -> Value:
        return NativeMethodValue(self._replace, name) if name == "replace" else super().getattr(frame, name)

    def _replace(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        is_text = all(value.python_type() is str for value in kwargs.values())
        if args or not is_text or not _NAMES_OF_CODE.issuperset(kwargs):
            raise Unsupported("method 'replace' of code")
        return CodeValue(self.code.replace(**{key: value.constant() for key, value in kwargs.items()}))

    def differs_in_names(self, other: types.CodeType) -> bool:
        """Whether it does what another one does, and may be called otherwise in tracebacks."""
        return self.code.replace(**{name: getattr(other, name) for name in _NAMES_OF_CODE}) == other

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.load_object(self.code)


makes(types.CodeType)(CodeValue)
