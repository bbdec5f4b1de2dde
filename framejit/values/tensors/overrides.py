"""Tensors (and other objects) whose class has a `__torch_function__` of its own: the program's code is inlined as torch
would call it.

Which function torch hands to `__torch_function__`, with which arguments and types, is asked of torch: the operation is
done once on stand-ins whose own `__torch_function__` writes down what it is called with.
`torch.Tensor.__torch_function__`, where the program's code usually ends, runs the function with the protocol off and
gives its results the class. What is left over, an operation in the graph that torch would have handed to the program,
breaks the graph.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode, get_default_nowrap_functions
from torch.utils._device import DeviceContext

from framejit.fakes.light_torch import light
from framejit.guards.plain_text import module_of
from framejit.guards.sources import static_lookup
from framejit.signals import Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS
from framejit.values.inspection import is_a, is_of_torch
from framejit.values.objects.classes import ClassValue
from framejit.values.objects.context_managers import ManagerValue
from framejit.values.objects.user_object import ObjectValue, bind_attribute
from framejit.values.sym_int import SymIntValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor import TensorValue, as_subclass
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_C = torch._C
_NAME: Final = "__torch_function__"


def is_overriding(value: Value) -> bool:
    kind = value.python_type() if isinstance(value, TensorValue | ObjectValue) else object
    return has_override(kind) and not issubclass(kind, TorchFunctionMode)


def concerned(frame: Frame, values: Sequence[Value]) -> bool:
    """Whether torch looks for the program's code before an operation on these values."""
    overrides = frame.capture.overrides
    if overrides.modes:
        return True
    if not overrides.enabled:
        return False
    if not overrides.met and any(
        isinstance(part, ObjectValue) and is_overriding(part) for value in values for part in _parts(value)
    ):
        overrides.meet()
    return overrides.met and any(is_overriding(part) for value in values for part in _parts(value))


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


class _Int(int):
    """Stands for an int that is not assumed."""


class _Float(float):
    """Stands for a float that is not assumed."""


class _Recorder(TorchFunctionMode):
    """Stands for the innermost of the program's function modes."""

    def __init__(self, asked: _Asked) -> None:
        super().__init__()
        self.asked = asked

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked.calls.append((func, types, args, kwargs))
        return self.asked.answer


class _StandIns:
    """Real objects in place of values, and the way back."""

    def __init__(self, values: Sequence[Value], for_mode: bool = False) -> None:
        self._for_mode = for_mode  # which is told of plain tensors too, by some functions
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
        kinds = list(
            dict.fromkeys(part.python_type() for value in values for part in _parts(value) if is_overriding(part))
        )
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
        elif isinstance(value, TensorValue) and self._for_mode:
            stand_in = torch.empty((1,) * value.fake.dim(), dtype=value.fake.dtype, device="meta")
            stand_in = (
                torch.nn.Parameter(stand_in, requires_grad=False) if value.cls is torch.nn.Parameter else stand_in
            )
        elif isinstance(value, TensorValue):
            stand_in = value.fake
        elif isinstance(value, ListValue) and value.cls is list:
            stand_in = [self.of(item) for item in value.items]
        elif isinstance(value, TupleValue) and value.cls is tuple:
            stand_in = tuple(self.of(item) for item in value.items)
        elif not value.symbolic and value.is_constant():
            return value.constant()
        elif isinstance(value, SymIntValue) and value.number is not None:
            stand_in = _Int(value.number)
        elif isinstance(value, SymNumberValue):
            stand_in = _Int(value.value) if type(value.value) is int else _Float(value.value)
        else:
            raise Unsupported(f"{value.describe()} as an argument of what a __torch_function__ is asked for", "FJ141")
        self._values[id(stand_in)] = (stand_in, value)
        return stand_in

    def back(self, obj: Any) -> Value:
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
    frame: Frame, function: Callable[..., Any], args: Sequence[Value], kwargs: dict[str, Value] | None = None,
    inline: bool = True
) -> Value | None:
    """The result of `function(*args, **kwargs)` by a `__torch_function__` of the program; None where torch calls none.

    What is made of several operations that torch hands over is inlined, or, without `inline`, None too.
    """
    kwargs = kwargs or {}
    if not concerned(frame, [*args, *kwargs.values()]):
        return None
    args, kwargs = deep_realize(frame, list(args)), dict(zip(kwargs, deep_realize(frame, list(kwargs.values()))))
    modes = frame.capture.overrides.modes
    stand_ins = _StandIns([*args, *kwargs.values()], bool(modes))
    given, named = [stand_ins.of(a) for a in args], {name: stand_ins.of(value) for name, value in kwargs.items()}
    asked, result = stand_ins.asked, None
    try:
        with light(), _C._EnableTorchFunction(), _Recorder(asked) if modes else contextlib.nullcontext():
            result = function(*given, **named)
    except Exception:  # stand-ins answer for one operation, not for one that goes on with the answer
        if not asked.calls:
            raise Unsupported(
                f"{getattr(function, '__name__', function)} of tensors with a __torch_function__, which raises", "FJ141"
            ) from None
        return _composed(frame, function, args, kwargs) if inline else None
    if not asked.calls:
        return None
    writes = getattr(function, "__name__", "") in ("__setitem__", "setitem") and result is None
    if len(asked.calls) > 1 or not (result is asked.answer or writes):
        return _composed(frame, function, args, kwargs) if inline else None
    answer = _call_override(frame, stand_ins, *asked.calls[0])
    return NONE if writes else answer


def _composed(frame: Frame, function: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value:
    """A Python function of torch that looks for the program's code in what it calls: inlined."""
    target = getattr(function, "python_function", function)
    if not is_a(target, types.FunctionType):
        raise Unsupported(
            f"{getattr(function, '__name__', function)} of tensors with a __torch_function__, which asks several times",
            "FJ141",
        )
    value = from_python(target)
    return value.call(frame, list(args), kwargs)


def attribute_of_override(frame: Frame, tensor: TensorValue, name: str) -> Value | None:
    """`tensor.name`, by a `__torch_function__`."""

    def read(owner: Any) -> Any:
        return getattr(owner, name, None)

    return handed_over(frame, read, [tensor])


def _call_override(frame: Frame, stand_ins: _StandIns, function: Any, kinds: tuple[type, ...], *rest: Any) -> Value:
    classes: list[Value] = [ClassValue(stand_ins.classes.get(kind, kind)) for kind in kinds]
    values = [
        stand_ins.back(function),
        TupleValue(classes),
        *(NONE if part is None else stand_ins.back(part) for part in rest),
    ]
    if frame.capture.overrides.modes:
        return _call_mode(frame, values)
    return call_overrides(frame, [stand_ins.owners[kind] for kind in kinds], values)


def _call_mode(frame: Frame, values: list[Value]) -> Value:
    """Call the `__torch_function__` of the innermost mode, which is off meanwhile."""
    overrides = frame.capture.overrides
    step, mode = overrides.entered[-1], overrides.leave()
    found = frame.call(
        bind_attribute(frame, static_lookup(mode.python_type(), _NAME), mode, mode.python_type(), _NAME), values, {}
    )
    overrides.enter(mode, step)
    if isinstance(found, ConstantValue) and found.value is NotImplemented:
        raise Unsupported("a function mode that does not take an operation", "FJ141")
    return found


def call_overrides(frame: Frame, owners: Sequence[Value], values: list[Value]) -> Value:
    """Call the `__torch_function__` of each owner in turn until one gives something."""
    for owner in owners:
        cls = owner.python_type()
        static = static_lookup(cls, _NAME)
        if not is_a(static, (classmethod, staticmethod)):
            raise Unsupported(f"the __torch_function__ of {cls.__qualname__}, which is no classmethod", "FJ141")
        found = frame.call(bind_attribute(frame, static, owner, cls, _NAME), values, {})
        if not (isinstance(found, ConstantValue) and found.value is NotImplemented):
            return found
    raise Unsupported("no __torch_function__ takes the operation", "FJ141")


# ---- torch's own part --------------------------------------------------------------------------------


def _default(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.Tensor.__torch_function__(cls, func, types, args=(), kwargs=None)`."""
    given = dict(zip(("cls", "func", "types", "args", "kwargs"), args)) | kwargs
    if len(given) != len(args) + len(kwargs) or not {"cls", "func", "types"} <= set(given) <= {
        "cls", "func", "types", "args", "kwargs",
    }:
        raise Unsupported("torch.Tensor.__torch_function__() with other arguments", "FJ141")
    cls, function = given["cls"], given["func"]
    if not isinstance(cls, ClassValue) or not function.is_constant():
        raise Unsupported("torch.Tensor.__torch_function__() of an unknown function", "FJ141")
    if not all(issubclass(cls.cls, kind) for kind in frame.constants(frame.iterate(given["types"]))):
        return ConstantValue(NotImplemented)
    positional = list(frame.iterate(given["args"])) if "args" in given else []
    named = given.get("kwargs", NONE)
    keywords: dict[str, Value] = {}
    if not is_none(named):
        if not isinstance(named, DictValue):
            raise Unsupported("torch.Tensor.__torch_function__() with a mapping of keywords", "FJ141")
        keywords = {key: realize(frame, value) for key, value in named.items.items()}
    with frame.capture.overrides.off():
        result = frame.call(function, positional, keywords)
    if function.constant() in get_default_nowrap_functions():
        return result
    return _converted(frame, result, cls.cls)


def _converted(frame: Frame, value: Value, cls: type) -> Value:
    """What `torch._tensor._convert` does: tensors, also those in tuples and lists, are made of the class."""
    value = realize(frame, value)
    if cls is torch.Tensor:
        return value
    if isinstance(value, TensorValue) and not issubclass(value.cls, cls):
        return as_subclass(frame, value, cls)
    if isinstance(value, TupleValue | ListValue):
        items = [_converted(frame, item, cls) for item in value.items]
        if isinstance(value, ListValue):
            return ListValue(items)
        if all(a is realize(frame, b) for a, b in zip(items, value.items)) and value.cls is not tuple:
            return value
        return TupleValue(items, value.cls)
    return value


HANDLERS[torch.Tensor.__torch_function__.__func__] = _default  # type: ignore[attr-defined]


class ProtocolGuardValue(ManagerValue):
    """`torch._C.DisableTorchFunctionSubclass()`, or `DisableTorchFunction()`, which modes mind too, made by the
    captured code."""

    def __init__(self, kind: type, made_at: int) -> None:
        self.kind, self.made_at = kind, made_at
        self._before: tuple[bool, bool, list[Value], list[int]] | None = None

    def python_type(self) -> type:
        return self.kind

    def enter(self, frame: Frame) -> Value:
        overrides = frame.capture.overrides
        self._before = overrides.enabled, overrides.all_disabled, overrides.modes, overrides.entered
        overrides.enabled = False
        if self.kind is _C.DisableTorchFunction:
            overrides.all_disabled, overrides.modes, overrides.entered = True, [], []
        frame.capture.effects.version += 1
        return self

    def leave(self, frame: Frame) -> Value:
        assert self._before is not None
        overrides = frame.capture.overrides
        overrides.enabled, overrides.all_disabled, overrides.modes, overrides.entered = self._before
        self._before = None
        frame.capture.effects.version += 1
        return NONE

    def reconstruct(self, cg: Codegen) -> None:
        if self._before is not None:
            cg.capture.break_at(
                self.made_at, Unsupported("a graph break while torch functions are not handed over", "FJ119")
            )
        cg.em.call_object(self.kind, lambda: None, 0)


def _make_guard(kind: Any, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if args or kwargs:
        raise Unsupported(f"arguments of {kind.__name__}")
    return ProtocolGuardValue(kind, frame.seq)


for _kind in (_C.DisableTorchFunctionSubclass, _C.DisableTorchFunction):
    HANDLERS[_kind] = partial(_make_guard, _kind)


def _has(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """has_torch_function and its like."""
    values = deep_realize(frame, args)
    if concerned(frame, values):
        return ConstantValue(True)
    for value in values:
        for part in (value, *value.children()):
            part = realize(frame, part)
            if is_overriding(part) and not isinstance(part, TensorValue) and not frame.capture.overrides.met:
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
    HANDLERS[_function] = _has


def _handle(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.overrides.handle_torch_function(public_api, relevant_args, *args, **kwargs)`."""
    if len(args) < 2:
        raise Unsupported("handle_torch_function() with names", "FJ141")
    function, relevant, *rest = args
    if frame.capture.overrides.modes:
        return _call_mode(frame, [function, _kinds(frame, relevant)[1], TupleValue(rest), DictValue(dict(kwargs))])
    owners, kinds = _kinds(frame, relevant)
    return call_overrides(frame, owners, [function, kinds, TupleValue(rest), DictValue(dict(kwargs))])


def _kinds(frame: Frame, relevant: Value) -> tuple[list[Value], Value]:
    """The values whose classes are asked, in order, and these classes."""
    owners: list[Value] = []
    for value in deep_realize(frame, list(frame.iterate(relevant))):
        if is_overriding(value) and value.python_type() not in [owner.python_type() for owner in owners]:
            place = next(
                (i for i, owner in enumerate(owners) if issubclass(value.python_type(), owner.python_type())),
                len(owners),
            )
            owners.insert(place, value)
    return owners, TupleValue([ClassValue(owner.python_type()) for owner in owners])


HANDLERS[torch.overrides.handle_torch_function] = _handle


# ---- function modes ----------------------------------------------------------------------------------


def _enter_mode(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """A mode of the program: its `__torch_function__` is inlined where torch would call it."""
    mode = realize(frame, args[0]) if len(args) == 1 and not kwargs else NONE
    if not isinstance(mode, ObjectValue) or not isinstance(static_lookup(mode.cls, _NAME, None), types.FunctionType):
        return None
    if is_of_torch(module_of(mode.cls)) and mode.cls is not DeviceContext:
        return None
    frame.capture.effects.version += 1
    frame.capture.overrides.enter(mode, frame.seq)
    return NONE


def _leave_mode(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    if not frame.capture.overrides.modes or args or kwargs:
        return None
    frame.capture.effects.version += 1
    return frame.capture.overrides.leave()


HANDLERS[_C._push_on_torch_function_stack] = _enter_mode
HANDLERS[_C._pop_torch_function_stack] = _leave_mode


