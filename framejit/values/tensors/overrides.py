"""Tensors (and other objects) whose class has a `__torch_function__` of its own: the program's code is inlined as torch would call it.

Which function torch hands to `__torch_function__`, with which arguments and types, is asked of torch: the operation is done once on stand-ins whose own
`__torch_function__` writes down what it is called with. `torch.Tensor.__torch_function__`, where the program's code usually ends, runs the function with the
protocol off and gives its results the class. What is left over, an operation in the graph that torch would have handed to the program, breaks the graph.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import get_default_nowrap_functions

from framejit.fakes.light_torch import light
from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.sequence import ListValue, TupleValue
from framejit.values.handlers import HANDLERS, Handler
from framejit.values.inspection import module_of
from framejit.values.lazy import deep_realize
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.user_object import ObjectValue, bind_attribute
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor import TensorValue
from framejit.values.tensors.torch_functions import KNOWN

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame

_C = torch._C
_NAME: Final = "__torch_function__"


def is_overriding(value: Value) -> bool:
    return isinstance(value, TensorValue | ObjectValue) and has_override(value.python_type())


def concerned(tx: Frame, values: Sequence[Value]) -> bool:
    """Whether torch looks for the program's code before an operation on these values."""
    if not tx.capture.overrides.met or not tx.capture.overrides.enabled:
        return False
    return any(is_overriding(part) for value in values for part in _parts(value))


def _parts(value: Value) -> Iterator[Value]:
    yield value
    if isinstance(value, TupleValue | ListValue):
        for item in value.items:
            yield from _parts(item)
    elif not isinstance(value, TensorValue | ObjectValue):
        yield from value.children()


# ---- asking torch ------------------------------------------------------------------------------------


class _Asked:
    """What torch called with what: the arguments of a `__torch_function__`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answer = object()


class _StandIns:
    """Real objects in place of values, and the way back."""

    def __init__(self, values: Sequence[Value]) -> None:
        self.asked = asked = _Asked()
        self._values: dict[int, tuple[Any, Value]] = {}
        self._classes: dict[type, type] = {}
        self.classes: dict[type, type] = {}
        """By the class that stands in, the class it stands for."""
        self.owners: dict[type, Value] = {}
        """For each such class the first value that has it."""

        def note(cls: type, *args: Any) -> Any:
            asked.calls.append(args)
            return asked.answer

        self._note: Any = classmethod(note)
        kinds = list(dict.fromkeys(part.python_type() for value in values for part in _parts(value) if is_overriding(part)))
        for cls in sorted(kinds, key=lambda cls: len(cls.__mro__)):  # a subclass goes first where torch asks
            bases = tuple(made for known, made in self._classes.items() if issubclass(cls, known))
            bases = tuple(b for b in bases if not any(b is not other and issubclass(other, b) for other in bases))
            base: tuple[type, ...] = bases or ((torch.Tensor,) if issubclass(cls, torch.Tensor) else (object,))
            self._classes[cls] = made = type(cls.__name__, base, {_NAME: self._note})
            self.classes[made] = cls

    def of(self, value: Value) -> Any:
        if is_overriding(value):
            made = self._classes[value.python_type()]
            self.owners.setdefault(made, value)
            stand_in: Any
            if isinstance(value, TensorValue):
                stand_in = torch.empty((1,) * value.fake.dim(), dtype=value.fake.dtype, device="meta").as_subclass(made)
            else:
                stand_in = made()
        elif isinstance(value, TensorValue):
            stand_in = value.fake
        elif isinstance(value, ListValue) and value.cls is list:
            stand_in = [self.of(item) for item in value.items]
        elif isinstance(value, TupleValue) and value.cls is tuple:
            stand_in = tuple(self.of(item) for item in value.items)
        elif not value.symbolic and value.is_constant():
            return value.constant()
        else:
            raise Unsupported(f"{value.describe()} as an argument of what a __torch_function__ is asked for", "FJ141")
        self._values[id(stand_in)] = (stand_in, value)
        return stand_in

    def back(self, obj: Any) -> Value:
        from framejit.values.wrap import from_python

        if id(obj) in self._values:
            return self._values[id(obj)][1]
        if type(obj) is tuple:
            return TupleValue([self.back(part) for part in obj])
        if type(obj) is list:
            return ListValue([self.back(part) for part in obj])
        if type(obj) is dict:
            return DictValue({key: self.back(part) for key, part in obj.items()})
        if isinstance(obj, torch.Tensor) or type(obj) in self.classes:
            raise Unsupported("an argument of a __torch_function__ that torch makes itself", "FJ141")
        return from_python(obj)


def handed_over(
    tx: Frame, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value] | None = None, inline: bool = True
) -> Value | None:
    """What `function(*args, **kwargs)` gives by a `__torch_function__` of the program; None where torch calls none.

    What is made of several operations that torch hands over is inlined, or, without `inline`, None too.
    """
    kwargs = kwargs or {}
    if not concerned(tx, [*args, *kwargs.values()]):
        return None
    args, kwargs = deep_realize(tx, list(args)), dict(zip(kwargs, deep_realize(tx, list(kwargs.values()))))
    stand_ins = _StandIns([*args, *kwargs.values()])
    given, named = [stand_ins.of(a) for a in args], {name: stand_ins.of(value) for name, value in kwargs.items()}
    asked, result = stand_ins.asked, None
    try:
        with light(), _C._EnableTorchFunction():
            result = function(*given, **named)
    except Exception:
        if not asked.calls:
            raise Unsupported(f"{getattr(function, '__name__', function)} of tensors with a __torch_function__, which raises", "FJ141") from None
        return _composed(tx, function, args, kwargs) if inline else None
    if not asked.calls:
        return None
    writes = getattr(function, "__name__", "") in ("__setitem__", "setitem") and result is None
    if len(asked.calls) > 1 or not (result is asked.answer or writes):
        return _composed(tx, function, args, kwargs) if inline else None
    answer = _call_override(tx, stand_ins, *asked.calls[0])
    return NONE if writes else answer


def _composed(tx: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A Python function of torch that looks for the program's code in what it calls: inlined."""
    from framejit.values.wrap import from_python

    target = getattr(function, "python_function", function)
    if not isinstance(target, types.FunctionType):
        raise Unsupported(f"{getattr(function, '__name__', function)} of tensors with a __torch_function__, which asks several times", "FJ141")
    value = from_python(target)
    return value.call(tx, list(args), kwargs)


class Method:
    """A call of a method by its name, as the function that `handed_over` does it with."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.python_function = static_lookup(torch.Tensor, name, None)

    def __call__(self, owner: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(owner, self.__name__)(*args, **kwargs)


def attribute_of_override(tx: Frame, tensor: TensorValue, name: str) -> Value | None:
    """`tensor.name`, by a `__torch_function__`."""

    def read(owner: Any) -> Any:
        return getattr(owner, name, None)

    return handed_over(tx, read, [tensor])


def _call_override(tx: Frame, stand_ins: _StandIns, function: Any, kinds: tuple[type, ...], *rest: Any) -> Value:
    values = [stand_ins.back(function), TupleValue([ClassValue(stand_ins.classes[kind]) for kind in kinds]), *map(stand_ins.back, rest)]
    return call_overrides(tx, [stand_ins.owners[kind] for kind in kinds], values)


def call_overrides(tx: Frame, owners: Sequence[Value], values: list[Value]) -> Value:
    """Call the `__torch_function__` of each owner in turn until one gives something."""
    for owner in owners:
        cls = owner.python_type()
        static = static_lookup(cls, _NAME)
        if not isinstance(static, (classmethod, staticmethod)):
            raise Unsupported(f"the __torch_function__ of {cls.__qualname__}, which is no classmethod", "FJ141")
        found = tx.call(bind_attribute(tx, static, owner, cls, _NAME), values, {})
        if not (isinstance(found, ConstantValue) and found.value is NotImplemented):
            return found
    raise Unsupported("no __torch_function__ takes the operation", "FJ141")


# ---- torch's own part --------------------------------------------------------------------------------


def _default(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.Tensor.__torch_function__(cls, func, types, args=(), kwargs=None)`."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | kwargs
    if len(given) != len(args) + len(kwargs) or not {"cls", "func", "types"} <= set(given) <= {"cls", "func", "types", "args", "kwargs"}:
        raise Unsupported("torch.Tensor.__torch_function__() with other arguments", "FJ141")
    cls, function = given["cls"], given["func"]
    if not isinstance(cls, ClassValue) or not function.is_constant():
        raise Unsupported("torch.Tensor.__torch_function__() of an unknown function", "FJ141")
    if not all(issubclass(cls.cls, kind) for kind in tx.constants(tx.iterate(given["types"]))):
        return ConstantValue(NotImplemented)
    positional = list(tx.iterate(given["args"])) if "args" in given else []
    named = given.get("kwargs", NONE)
    keywords: dict[str, Value] = {}
    if not is_none(named):
        if not isinstance(named, DictValue):
            raise Unsupported("torch.Tensor.__torch_function__() with a mapping of keywords", "FJ141")
        keywords = {key: realize(tx, value) for key, value in named.items.items()}
    with tx.capture.overrides.off():
        result = tx.call(function, positional, keywords)
    if function.constant() in get_default_nowrap_functions():
        return result
    return _converted(tx, result, cls.cls)


def _converted(tx: Frame, value: Value, cls: type) -> Value:
    """What `torch._tensor._convert` does: tensors, also those in tuples and lists, are made of the class."""
    value = realize(tx, value)
    if cls is torch.Tensor:
        return value
    if isinstance(value, TensorValue) and not issubclass(value.cls, cls):
        return as_subclass(tx, value, cls)
    if isinstance(value, TupleValue | ListValue):
        items = [_converted(tx, item, cls) for item in value.items]
        if isinstance(value, ListValue):
            return ListValue(items)
        if all(a is realize(tx, b) for a, b in zip(items, value.items)) and value.cls is not tuple:
            return value
        return TupleValue(items, value.cls)
    return value


def as_subclass(tx: Frame, tensor: TensorValue, cls: type) -> TensorValue:
    """`tensor.as_subclass(cls)`: another tensor over the same memory."""
    from framejit.values.objects.classes import is_finalized
    from framejit.values.tensors.tensor_classes import dispatches_as_torch_does, is_of_torch

    if not issubclass(cls, torch.Tensor) or not dispatches_as_torch_does(cls) or is_finalized(cls) or (is_of_torch(module_of(cls)) and cls is not torch.Tensor):
        raise Unsupported(f"as_subclass({cls.__qualname__})", "FJ141")
    if has_override(cls):
        tx.capture.overrides.meet()
    with tx.capture.overrides.off():
        made = tx.capture.graph.call(torch.ops.aten.alias.default, [tensor])
    assert isinstance(made, TensorValue)
    made.cls, made.made_as = cls, (tx.seq, 0 if made.fake.is_inference() else made.fake._version)
    return made


KNOWN[torch.Tensor.__torch_function__.__func__] = _default  # type: ignore[attr-defined]


class ProtocolGuardValue(Value):
    """`torch._C.DisableTorchFunctionSubclass()`, made by the captured code."""

    enters_natively = True
    mutable = True

    def __init__(self, made_at: int) -> None:
        self.made_at = made_at
        self._before: bool | None = None

    def python_type(self) -> type:
        return type(_C.DisableTorchFunctionSubclass())

    def getattr(self, tx: Frame, name: str) -> Value:
        return _ProtocolGuardMethod(self, name) if name in ("__enter__", "__exit__") else super().getattr(tx, name)

    def enter(self, tx: Frame) -> Value:
        self._before, tx.capture.overrides.enabled = tx.capture.overrides.enabled, False
        tx.capture.effects.version += 1
        return self

    def leave(self, tx: Frame) -> Value:
        assert self._before is not None
        tx.capture.overrides.enabled, self._before = self._before, None
        tx.capture.effects.version += 1
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        if self._before is not None:
            cg.capture.break_at(self.made_at, Unsupported("a graph break while torch functions are not handed over", "FJ119"))
        cg.em.call_object(_C.DisableTorchFunctionSubclass, lambda: None, 0)


class _ProtocolGuardMethod(Value):
    """Entering or leaving such a guard."""

    def __init__(self, guard: ProtocolGuardValue, name: str) -> None:
        self.guard, self.name = guard, name

    def children(self) -> Iterator[Value]:
        return iter((self.guard,))

    def call(self, tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        return self.guard.enter(tx) if self.name == "__enter__" else self.guard.leave(tx)

    def reconstruct(self, cg: Codegen) -> None:
        cg.load(self.guard)
        cg.em.load_attr(self.name)


def _make_guard(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args or kwargs:
        raise Unsupported("arguments of DisableTorchFunctionSubclass")
    return ProtocolGuardValue(tx.seq)


HANDLERS[_C.DisableTorchFunctionSubclass] = _make_guard


def _has(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """has_torch_function and its like."""
    values = deep_realize(tx, args)
    if concerned(tx, values):
        return ConstantValue(True)
    for value in values:
        for part in (value, *value.children()):
            part = realize(tx, part)
            if is_overriding(part) and not isinstance(part, TensorValue) and not tx.capture.overrides.met:
                raise Unsupported(f"{part.describe()} has a __torch_function__ of its own", "FJ141")
    return ConstantValue(False)


for _function in (
    torch.overrides.has_torch_function,
    torch.overrides.has_torch_function_unary,
    torch.overrides.has_torch_function_variadic,
    _C._has_torch_function,
    _C._has_torch_function_unary,
    _C._has_torch_function_variadic,
):
    KNOWN[_function] = _has


def _handle(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.overrides.handle_torch_function(public_api, relevant_args, *args, **kwargs)`."""
    if len(args) < 2:
        raise Unsupported("handle_torch_function() with names", "FJ141")
    function, relevant, *rest = args
    owners: list[Value] = []
    for value in deep_realize(tx, list(tx.iterate(relevant))):
        if is_overriding(value) and value.python_type() not in [owner.python_type() for owner in owners]:
            place = next((i for i, owner in enumerate(owners) if issubclass(value.python_type(), owner.python_type())), len(owners))
            owners.insert(place, value)
    kinds: list[Value] = [ClassValue(owner.python_type()) for owner in owners]
    return call_overrides(tx, owners, [function, TupleValue(kinds), TupleValue(rest), DictValue(dict(kwargs))])


KNOWN[torch.overrides.handle_torch_function] = _handle


def _answer_of_state(of_state: Callable[[Capture], Any], handler: Handler | Any) -> Any:
    def answer(tx: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        found: Value = ConstantValue(of_state(tx.capture)) if tx.capture.overrides.met else handler(tx, args, kwargs)
        return found

    return answer


KNOWN[_C._is_torch_function_enabled] = _answer_of_state(lambda capture: capture.overrides.enabled, KNOWN[_C._is_torch_function_enabled])
