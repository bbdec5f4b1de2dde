"""From real Python objects to symbolic values: `wrap` for what has a source, `from_python` for what needs none."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
import operator
import os
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit import _native as native
from framejit.fakes.metadata import can_be_open, has_fakes
from framejit.guards.sources import AttrSource, CallSource, ConstSource, DictKeySource, IndexSource, Source, const_source, key_source, static_lookup
from framejit.signals import NotYet, Unsupported
from framejit.values.arrays.array_functions import NumpyFunctionValue, is_numpy_function
from framejit.values.arrays.ndarray import is_number, wrap_array, wrap_number
from framejit.values.base import Value
from framejit.values.builtins import constructors, copying, formatting, iteration, known_objects, numbers, reflection  # noqa: F401  register handlers
from framejit.values.builtins.c_functions import BuiltinValue
from framejit.values.builtins.cached_function import CachedFunctionValue
from framejit.values.builtins.models import ModelFunctionValue, is_model_namespace
from framejit.values.builtins.operator_module import GetterValue
from framejit.values.builtins.partial import PartialValue
from framejit.values.constant import EQUAL_TYPES, SINGLETON_TYPES, ConstantValue, is_constant_object
from framejit.values.containers.deque import DequeValue
from framejit.values.containers.hashing import existing_key, has_own_hash
from framejit.values.containers.iterators import ItemsIterator, OpaqueIterator, iterated_sequence, iterator_position, iterator_state
from framejit.values.containers.mapping import DictValue, MappingProxyValue
from framejit.values.containers.sequence import ListValue, SequenceValue, TupleValue, adds_only_names, is_return_type
from framejit.values.containers.sets import Layout, SetValue
from framejit.values.inspection import dict_behind, instance_dict, is_a
from framejit.values.lazy import LazyValue, OpaqueValue
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.exceptions import ExceptionValue
from framejit.values.objects.functions import FunctionValue, MethodValue
from framejit.values.objects.module import ModuleValue
from framejit.values.objects.python_module import PythonModuleValue
from framejit.values.objects.user_object import ObjectValue
from framejit.values.objects.weak_references import wrap_weak_reference
from framejit.values.scalar import ScalarValue
from framejit.values.size import LARGEST, SizeValue
from framejit.values.tensors import overrides, profiler_ranges  # noqa: F401  register handlers
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor_classes import dispatches_as_torch_does
from framejit.values.tensors.torch_functions import KNOWN, TorchFunctionValue, is_graph_callable

if TYPE_CHECKING:
    from framejit.values.context import Capture

_BUILTIN_TYPES = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType)
_TORCH = os.path.dirname(torch.__file__)
_ITERABLES: tuple[Any, ...] = ([], (), {}, {}.keys(), {}.values(), {}.items(), set(), "", b"", range(0))
_ITERATOR_TYPES = tuple(type(iter(x)) for x in _ITERABLES) + (
    enumerate,
    zip,
    map,
    filter,
    reversed,
    types.GeneratorType,
    itertools.chain,
    itertools.islice,
    itertools.count,
    itertools.repeat,
    itertools.cycle,
    itertools.product,
)


def wrap(capture: Capture, obj: Any, source: Source) -> Value:
    """The symbolic value of `obj`, which the running frame reads at `source`; guards what is assumed of it."""
    if is_constant_object(obj) and type(obj) not in (tuple, torch.Size, frozenset):
        return _constant(capture, obj, source)
    if type(obj) is types.FunctionType and is_model_namespace(obj.__globals__):
        return ModelFunctionValue(obj)
    known = capture.known(obj)
    if known is not None:
        if known.source is not None and known.source != source:
            if known.is_constant() and not (isinstance(known, FunctionValue) and known.capture is not None):
                capture.add_guard(source, native.C_ID, obj)
            else:
                capture.guard_same(source, known.source)
        return known
    value = _wrap_new(capture, obj, source)
    capture.remember(obj, value)
    return value


def _constant(capture: Capture, obj: Any, source: Source) -> Value:
    if type(obj) in (int, float) and (source.name() in capture.changing or capture.dynamic.leaves_open(obj, source)):
        capture.add_guard(source, native.C_TYPE, type(obj))
        if type(obj) is int and not capture.dynamic.never and 0 <= obj <= LARGEST:
            return SizeValue(capture.sizes.number(obj, source), source, obj)
        return ScalarValue(capture, obj, source)
    if type(obj) in SINGLETON_TYPES or type(obj) is bool or is_a(obj, enum.Enum):
        capture.add_guard(source, native.C_ID, obj)
    elif type(obj) in EQUAL_TYPES or type(obj) is slice:
        capture.add_guard(source, native.C_EQUALS, obj)
    else:
        capture.add_guard(source, native.C_ID, obj)
    return ConstantValue(obj, source)


def _wrap_new(capture: Capture, obj: Any, source: Source) -> Value:
    cls = type(obj)
    if cls in weakref.ProxyTypes:  # whatever is asked of it is asked of the object behind, which may be gone
        raise Unsupported("a weak proxy", "FJ111")
    if is_a(obj, torch.Tensor):
        return _wrap_tensor(capture, obj, source)
    if is_a(obj, type):
        capture.add_guard(source, native.C_ID, obj)
        return ClassValue(obj, source)
    if is_graph_callable(obj) or _is_known(obj):
        capture.add_guard(source, native.C_ID, obj)
        return TorchFunctionValue(obj, source) if not is_a(obj, types.FunctionType) else FunctionValue(obj, source)
    if cls is np.ndarray:
        return wrap_array(capture, obj, source)
    if is_number(obj):
        return wrap_number(capture, obj, source)
    if is_numpy_function(obj):
        capture.add_guard(source, native.C_ID, obj)
        return NumpyFunctionValue(obj, source)
    if is_a(obj, _BUILTIN_TYPES) or cls is functools._lru_cache_wrapper:
        if cls is functools._lru_cache_wrapper:
            return _wrap_cached_function(capture, obj, source)
        return _wrap_builtin(capture, obj, source)
    for kinds, wrapper in _WRAPPERS:
        if cls in kinds:
            capture.add_guard(source, native.C_TYPE, cls)
            return wrapper(capture, obj, source)
    if is_a(obj, types.ModuleType):
        if static_lookup(cls, "__getattribute__") is not types.ModuleType.__getattribute__:
            raise Unsupported(f"a module of the class {cls.__qualname__}, whose __getattribute__ is its own")
        capture.add_guard(source, native.C_ID, obj)
        return PythonModuleValue(obj, source)
    if cls is types.CodeType:
        capture.add_guard(source, native.C_ID, obj)
        return ObjectValue(cls, obj, source)
    if is_a(obj, native.Dispatcher):  # an optimized function called from captured code: look through it
        capture.add_guard(source, native.C_ID, obj)
        return wrap(capture, obj.__wrapped__, AttrSource(source, "__wrapped__"))
    if is_a(obj, threading.local):
        raise Unsupported("a threading.local, whose attributes are another set in each thread")
    capture.add_guard(source, native.C_TYPE, cls)
    if isinstance(static_lookup(cls, "__next__", None), types.WrapperDescriptorType) and all(n.startswith("_") for n in vars(cls)):
        return OpaqueIterator(obj, source)
    if is_a(obj, torch.nn.Module):
        return ModuleValue(cls, obj, source)
    if is_a(obj, tuple):
        return _wrap_tuple(capture, obj, source)
    base = _container_part(capture, obj, source)
    if is_a(obj, BaseException):
        return ExceptionValue(cls, [LazyValue(a, IndexSource(AttrSource(source, "args"), i)) for i, a in enumerate(obj.args)], obj, source)
    return ObjectValue(cls, obj, source, base)


def _is_known(obj: Any) -> bool:
    return type(obj) in (types.FunctionType, *_BUILTIN_TYPES) and obj in KNOWN


def _wrap_tensor(capture: Capture, obj: torch.Tensor, source: Source) -> Value:
    if type(obj) in (torch.nn.UninitializedParameter, torch.nn.UninitializedBuffer):
        raise NotYet("a lazy module, whose parameters are made by its first call", "FJ212")
    if not dispatches_as_torch_does(type(obj)):
        raise Unsupported(f"tensor subclass {type(obj).__qualname__}, whose __torch_dispatch__ is the program's own", "FJ141")
    if not has_fakes(obj):
        capture.add_guard(source, native.C_TYPE, type(obj))
        return OpaqueValue(type(obj), source, Unsupported(f"a {'nested' if obj.is_nested else obj.layout} tensor", "FJ140"))
    if has_override(type(obj)):
        if not isinstance(static_lookup(type(obj), "__torch_function__"), (classmethod, staticmethod)):
            raise Unsupported(f"tensor subclass {type(obj).__qualname__}, whose __torch_function__ is no classmethod", "FJ141")
        if static_lookup(type(obj), "__getattribute__") is not static_lookup(torch.Tensor, "__getattribute__"):
            raise Unsupported(f"tensor subclass {type(obj).__qualname__}, whose __getattribute__ is its own", "FJ141")
        capture.overrides.meet()
    dims = capture.dynamic.of(obj, source)
    if not dims or not can_be_open(obj):
        capture.add_guard(source, native.C_TENSOR, obj)
        return capture.graph.add_input(obj, source)
    layout = capture.sizes.open(obj, source, dims)
    capture.add_guard(source, native.C_TENSOR, (obj, layout.free_sizes, layout.free_strides))
    return capture.graph.add_input(obj, source, layout)


def _is_bound(obj: Any, owner: Any) -> bool:
    """Whether a C function is a method of `owner`; pybind11's functions keep a record of their own in its place."""
    return owner is not None and static_lookup(type(owner), obj.__name__, None) is not None


def _wrap_builtin(capture: Capture, obj: Any, source: Source) -> Value:
    owner = getattr(obj, "__self__", None)
    if _is_bound(obj, owner) and not is_a(owner, (types.ModuleType, type)) and is_a(obj, (types.BuiltinMethodType, types.MethodWrapperType)):
        from framejit.values.builtins.c_methods import BuiltinMethodValue

        capture.add_guard(source, native.C_TYPE, type(obj))
        capture.add_guard(AttrSource(source, "__name__"), native.C_EQUALS, obj.__name__)
        if is_a(owner, torch.Tensor):
            from framejit.values.tensors.tensor import TensorMethodValue

            tensor = wrap(capture, owner, AttrSource(source, "__self__"))
            return TensorMethodValue(tensor, obj.__name__)  # type: ignore[arg-type]
        return BuiltinMethodValue(wrap(capture, owner, AttrSource(source, "__self__")), obj.__name__)
    capture.add_guard(source, native.C_ID, obj)
    return BuiltinValue(obj, source)


def _wrap_cached_function(capture: Capture, obj: Any, source: Source) -> Value:
    if "__wrapped__" not in vars(obj):  # one that was just made
        capture.add_guard(source, native.C_TYPE, type(obj))
        return ObjectValue(type(obj), obj, source)
    capture.add_guard(source, native.C_ID, obj)
    return CachedFunctionValue(obj, wrap(capture, obj.__wrapped__, AttrSource(source, "__wrapped__")), source)


# What torch wraps around its own functions to keep Dynamo out of them; here they are looked through.
_DYNAMO_WRAPPERS = {"_disable_dynamo.<locals>.inner": "__wrapped__", "DisableContext.__call__.<locals>._fn": "_torchdynamo_orig_callable"}


def _wrap_function(capture: Capture, obj: types.FunctionType, source: Source) -> Value:
    inner = _DYNAMO_WRAPPERS.get(obj.__code__.co_qualname)
    if inner is not None and obj.__code__.co_filename.startswith(_TORCH) and inner in obj.__dict__ and obj.__dict__[inner].__module__.startswith("torch."):
        capture.add_guard(source, native.C_ID, obj)
        return wrap(capture, obj.__dict__[inner], AttrSource(source, inner))
    if "<locals>" in obj.__qualname__ and not hasattr(obj, "_framejit_resume"):
        # Made anew by each call of what defines it: the same code with other cells and defaults, which are read from it.
        capture.add_guard(source, native.C_TYPE, types.FunctionType)
        capture.add_guard(AttrSource(source, "__code__"), native.C_ID, obj.__code__)
        capture.add_guard(AttrSource(source, "__globals__"), native.C_ID, obj.__globals__)
        return FunctionValue(obj, source, capture)
    capture.add_guard(source, native.C_ID, obj)
    return FunctionValue(obj, source)


def _wrap_method(capture: Capture, obj: types.MethodType, source: Source) -> Value:
    return MethodValue(wrap(capture, obj.__func__, AttrSource(source, "__func__")), wrap(capture, obj.__self__, AttrSource(source, "__self__")), source)


def _wrap_tuple(capture: Capture, obj: tuple[Any, ...], source: Source) -> Value:
    cls = type(obj)
    capture.add_guard(source, native.C_LEN, tuple.__len__(obj))
    plain = cls in (tuple, torch.Size) or is_return_type(cls) or adds_only_names(cls) and instance_dict(obj) is None
    part = source if plain or cls.__getitem__ is tuple.__getitem__ else CallSource(source, tuple_part)
    items: list[Value] = [LazyValue(x, IndexSource(part, i)) for i, x in enumerate(tuple.__iter__(obj))]
    if plain:
        return TupleValue(items, cls, source)
    return ObjectValue(cls, obj, source, TupleValue(items, tuple, source))


def tuple_part(obj: tuple[Any, ...]) -> tuple[Any, ...]:
    """What an instance of a subclass of tuple holds as a tuple, whatever its own methods say."""
    return tuple.__getitem__(obj, slice(None))


def _wrap_list(capture: Capture, obj: Any, source: Source) -> Value:
    def look() -> list[Value]:
        capture.add_guard(source, native.C_LEN, len(obj))
        return [LazyValue(x, IndexSource(source, i)) for i, x in enumerate(obj)]

    def look_at_bound() -> int | None:
        capture.add_guard(AttrSource(source, "maxlen"), native.C_EQUALS, obj.maxlen)
        return obj.maxlen

    return DequeValue([], look_at_bound, source, look) if is_a(obj, deque) else ListValue([], source, look)


def _wrap_dict(capture: Capture, obj: Any, source: Source) -> Value:
    if capture.effects.globals_of(obj):
        raise Unsupported("a namespace the captured code has written global variables of", "FJ115")
    kind = next(k for k in (OrderedDict, defaultdict, types.MappingProxyType, dict) if is_a(obj, k))
    if kind is types.MappingProxyType:
        behind = dict_behind(obj)
        capture.effects.show_namespace(behind)
        if type(behind) is dict:
            value = wrap(capture, behind, CallSource(source, dict_behind))
            if type(value) is DictValue:
                return MappingProxyValue(value, source)
        if type(behind) is not OrderedDict:  # that of an inspect.Signature
            raise Unsupported("a mappingproxy of what is no plain dict", "FJ122")
    factory = wrap(capture, obj.default_factory, AttrSource(source, "default_factory")) if kind is defaultdict else ConstantValue(None)
    return DictValue(_dict_items(capture, obj, source), source, kind, factory)


def _dict_items(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    from framejit.guards.sources import GetItemSource, TypedKey

    _look_into(obj)
    exact = type(obj) is dict
    # a guard that asked a defaultdict for an item would add the key
    item = key_source if is_a(obj, dict) else (lambda s, k: GetItemSource(s, TypedKey(k)))
    if not all(map(_is_plain_key, obj)):
        return _items_by_object(capture, obj, source)
    if exact:
        capture.add_guard(source, native.C_KEYS, tuple(obj))
    elif not _belongs_to_signature(source):
        constant = all(map(is_constant_object, obj))
        capture.add_guard(_keys_source(source), native.C_EQUALS if constant else native.C_LEN, tuple(obj) if constant else len(obj))
    return {k: LazyValue(v, item(source, k)) for k, v in obj.items()}


def _look_into(obj: Any) -> None:
    """Unsupported for an OrderedDict whose keys are asked for their hashes when it is read, or that methods of dict changed behind its own back."""
    if not is_a(obj, OrderedDict):
        return
    if any(has_own_hash_method(type(k)) and not is_a(k, (torch.Tensor, enum.Enum)) for k in dict.keys(obj)):
        raise Unsupported("an OrderedDict of objects that have their own hash, which reading it asks for", "FJ122")
    try:
        known = len(list(OrderedDict.items(obj)))
    except (KeyError, RuntimeError):
        known = -1
    if known != dict.__len__(obj):
        raise Unsupported("an OrderedDict whose order does not match its items")


def _is_plain_key(key: Any) -> bool:
    """Whether a key is known by value, or is a class or function that is compared by identity."""
    if is_a(key, type):
        return not has_own_hash_method(type(key))
    return is_constant_object(key) or type(key) in (types.FunctionType, types.BuiltinFunctionType)


def has_own_hash_method(cls: type) -> bool:
    return isinstance(static_lookup(cls, "__hash__", None), types.FunctionType)


def _items_by_object(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    """The items of a dict some of whose keys are objects: by position, and with the hashes that the dict keeps."""
    capture.add_guard(source, native.C_LEN, len(obj))
    where = _keys_source(source)
    places: list[Source] = [DictKeySource(source, i) if type(obj) is dict else IndexSource(where, i) for i in range(len(obj))]
    keys = _existing_keys(capture, obj, source, list(_table_class(obj).keys(obj)), places)
    values = _values_source(source)
    return {key: LazyValue(v, IndexSource(values, i)) for i, (key, v) in enumerate(zip(keys, values_of(obj)))}


def _existing_keys(capture: Capture, table: Any, source: Source, objects: list[Any], places: list[Source]) -> list[Any]:
    """What stands for the objects that a table from outside holds."""
    if not is_a(table, (dict, set, frozenset)):  # a mappingproxy
        raise Unsupported(f"a {type(table).__name__} of objects", "FJ122")
    stored = _stored_hashes(table)
    found = [existing_key(capture, wrap(capture, k, place), stored[id(k)]) for k, place in zip(objects, places)]
    if any(map(has_own_hash, found)):
        capture.add_guard(CallSource(source, own_hashes), native.C_EQUALS, own_hashes(table))
    return found


def own_hashes(table: Any) -> tuple[int | None, ...]:
    """The hashes that a table keeps of objects whose classes define it; they may have another one by now."""
    stored = _stored_hashes(table)
    keys = _table_class(table).keys(table) if is_a(table, dict) else table
    return tuple(stored[id(k)] if has_own_hash_method(type(k)) and not is_a(k, torch.Tensor) else None for k in keys)


def _stored_hashes(table: Any) -> dict[int, int]:
    """By the ids of the keys: an OrderedDict has another order than its table."""
    return dict(zip(map(id, dict.keys(table) if is_a(table, dict) else table), native.stored_hashes(table)))


def _belongs_to_signature(source: Source) -> bool:
    """Whether the mapping is that of an inspect.Signature made while capturing, which nothing changes."""
    base = source.base
    return isinstance(base, ConstSource) and isinstance(base.ref.value, inspect.Signature)


def _keys_source(source: Source) -> Source:
    from framejit.guards.sources import CallSource

    return CallSource(source, tuple)


def _values_source(source: Source) -> Source:
    from framejit.guards.sources import CallSource

    return CallSource(source, values_of)


def _table_class(table: Any) -> Any:
    """The C class whose methods read a dict or one of a subclass, in the order the program sees."""
    return next((cls for cls in (OrderedDict, dict) if is_a(table, cls)), type(table))


def values_of(mapping: Any) -> tuple[Any, ...]:
    return tuple(_table_class(mapping).values(mapping))


def _wrap_set(capture: Capture, obj: Any, source: Source) -> Value:
    if not all(is_constant_object(k) or is_a(k, type) and not has_own_hash_method(type(k)) for k in obj):
        capture.add_guard(source, native.C_LEN, len(obj))
        where = CallSource(source, tuple)
        keys = _existing_keys(capture, obj, source, list(obj), [IndexSource(where, i) for i in range(len(obj))])
        return SetValue(set(keys) if is_a(obj, set) else frozenset(keys), source, order=keys)
    classes = any(is_a(k, type) for k in obj)
    capture.add_guard(
        CallSource(source, frozenset),
        native.C_PY if classes else native.C_EQUALS,
        functools.partial(operator.eq, frozenset(obj)) if classes else frozenset(obj),
    )
    layout = native.set_layout(obj)
    slots, taken, left, finger, members = layout
    items = native.set_of_layout(set if is_a(obj, set) else frozenset, slots, taken, left, finger, members, (None,) * len(members))
    return SetValue(items, source, (Layout(source, layout),))


def _wrap_partial(capture: Capture, obj: Any, source: Source) -> Value:
    function, args, keywords = (wrap(capture, getattr(obj, part), AttrSource(source, part)) for part in ("func", "args", "keywords"))
    if not isinstance(args, TupleValue) or not isinstance(keywords, DictValue):
        raise Unsupported("a functools.partial that was given its state by hand")
    return PartialValue(function, args, keywords, obj, source)


def _wrap_getter(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_ID, obj)
    function, args, *rest = obj.__reduce__()
    keywords: dict[str, Any] = {}
    if isinstance(function, functools.partial):  # a methodcaller with keywords
        args, keywords = (*function.args, *args), function.keywords
    return GetterValue(type(obj), [from_python(a) for a in args], {k: from_python(v) for k, v in keywords.items()}, source)


def _wrap_iterator(capture: Capture, obj: Any, source: Source) -> Value:
    if type(obj) in (type(iter([])), type(iter(()))):
        sequence, position = iterator_state(obj)
        where = CallSource(source, iterator_position)
        # A position that differs from call to call is that of a loop with a break in its body: the loop stays in Python.
        if where.name() not in capture.changing and position is not None:
            capture.add_guard(where, native.C_EQUALS, position)
            known = wrap(capture, sequence, CallSource(source, iterated_sequence))
            if isinstance(known, SequenceValue):
                return ItemsIterator(known, type(obj), position, source)
    return OpaqueIterator(obj, source)


def _wrap_cell(capture: Capture, obj: Any, source: Source) -> Value:
    return capture.cell(obj, source, source.name())


_WRAPPERS: list[tuple[tuple[Any, ...], Callable[[Capture, Any, Source], Value]]] = [
    ((types.FunctionType,), _wrap_function),
    ((types.MethodType,), _wrap_method),
    ((tuple, torch.Size), _wrap_tuple),
    ((list, deque), _wrap_list),
    ((dict, OrderedDict, defaultdict, types.MappingProxyType), _wrap_dict),
    ((set, frozenset), _wrap_set),
    ((functools.partial,), _wrap_partial),
    ((operator.attrgetter, operator.itemgetter, operator.methodcaller), _wrap_getter),
    ((types.CellType,), _wrap_cell),
    ((weakref.ref,), wrap_weak_reference),
    (_ITERATOR_TYPES, _wrap_iterator),
]


def _container_part(capture: Capture, obj: Any, source: Source) -> Value | None:
    """The built-in part of an instance of a list, dict or set subclass; a view, so writes to it are not captured."""
    cls = type(obj)
    if is_a(obj, dict):
        kind = next(k for k in (OrderedDict, defaultdict, dict) if is_a(obj, k))
        factory = wrap(capture, obj.default_factory, AttrSource(source, "default_factory")) if kind is defaultdict else ConstantValue(None)
        if cls.__iter__ not in (dict.__iter__, OrderedDict.__iter__) or cls.items not in (dict.items, OrderedDict.items):
            raise Unsupported(f"an existing {cls.__qualname__}, whose iteration is its own")
        return DictValue(_base_dict_items(capture, obj, source), source, kind, factory)
    if is_a(obj, list):
        if cls.__getitem__ is not list.__getitem__ or cls.__len__ is not list.__len__:
            raise Unsupported(f"an existing {cls.__qualname__}, whose indexing is its own")
        return _wrap_list(capture, obj, source)
    if is_a(obj, (set, frozenset)):
        return _wrap_set(capture, obj, source)
    return None


def _base_dict_items(capture: Capture, obj: Any, source: Source) -> dict[Any, Value]:
    _look_into(obj)
    if not all(map(is_constant_object, dict.keys(obj))):
        return _items_by_object(capture, obj, source)
    cls = type(obj)
    if cls.__iter__ is dict.__iter__ and cls.__getitem__ is dict.__getitem__:  # its keys and values are where those of a dict are
        capture.add_guard(source, native.C_KEYS, tuple(obj))
        return {k: LazyValue(v, key_source(source, k)) for k, v in dict.items(obj)}
    capture.add_guard(_keys_source(source), native.C_EQUALS, tuple(obj))
    values = _values_source(source)
    return {k: LazyValue(dict.__getitem__(obj, k), IndexSource(values, i)) for i, k in enumerate(obj)}


def wrap_attribute(capture: Capture, obj: Any, source: Source | None, name: str) -> Value:
    """Attribute `name` (with value `obj`) of what stands at `source`."""
    return LazyValue(obj, AttrSource(source, name)) if source is not None else from_python(obj)


def from_python(obj: Any) -> Value:
    """A value that needs no guard: a constant made here, or an object reached from one that is guarded."""
    if is_constant_object(obj) and type(obj) not in (tuple, torch.Size, frozenset):
        return ConstantValue(obj)
    cls = type(obj)
    if cls in _SYMBOLS:
        return _symbolic(obj)
    if is_a(obj, type):
        return ClassValue(obj)
    if cls is tuple or cls is torch.Size or adds_only_names(cls):
        made = TupleValue([from_python(x) for x in obj], cls)
        made.existing = obj if is_constant_object(obj) else None
        return made
    if cls is list:
        return ListValue([from_python(x) for x in obj])
    if cls is dict:
        if not all(map(_is_plain_key, obj)):
            raise Unsupported("a dictionary with objects as keys, which nothing guards", "FJ122")
        return DictValue({k: from_python(v) for k, v in obj.items()})
    if cls in (set, frozenset):
        if not all(map(_is_plain_key, obj)):
            raise Unsupported("a set of objects, which nothing guards", "FJ123")
        return SetValue(obj.copy())
    if is_a(obj, types.FunctionType):
        return ModelFunctionValue(obj) if is_model_namespace(obj.__globals__) else FunctionValue(obj, const_source(obj))
    if is_graph_callable(obj):
        return TorchFunctionValue(obj)
    if is_numpy_function(obj):
        return NumpyFunctionValue(obj)
    if is_a(obj, _BUILTIN_TYPES):
        return BuiltinValue(obj)
    if is_a(obj, types.ModuleType):
        return PythonModuleValue(obj, const_source(obj))
    if is_a(obj, types.CodeType):
        return CodeValue(obj)
    return ObjectValue(cls, obj, const_source(obj))


_SYMBOLS = {torch.SymInt: int, torch.SymBool: bool, torch.SymFloat: float}


def _symbolic(obj: Any) -> Value:
    """A size that a fake has, or what torch computed from sizes: an expression where it is an int, else assumed as it is now."""
    if isinstance(obj, torch.SymInt):
        known = obj.node.known()
        return SizeValue(obj) if known is None else ConstantValue(known)
    return ConstantValue(_SYMBOLS[type(obj)](obj))


class CodeValue(Value):
    """A code object among a function's constants."""

    def __init__(self, code: types.CodeType) -> None:
        self.code = code

    def python_type(self) -> type:
        return types.CodeType

    def constant(self) -> Any:
        return self.code

    def reconstruct(self, cg: Any) -> None:
        cg.em.load_object(self.code)
