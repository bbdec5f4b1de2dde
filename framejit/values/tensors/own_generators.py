"""Random numbers that generators of the program draw (`generator=g`): an operation of the graph draws them, where the
generator is an existing one on the CPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.backends.draws.own_generators import DRAWN_TENSOR, GENERATORS, IN_PLACE, MAKE
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.made_generators import MadeGeneratorValue, made_generator
from framejit.values.objects.user_object import ObjectValue
from framejit.values.tensors.seeds import seed_in_tensor
from framejit.values.tensors.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_DEFAULTS: Final[dict[str, dict[str, float]]] = {
    "normal_": {"mean": 0.0, "std": 1.0}, "uniform_": {"from": 0.0, "to": 1.0}, "bernoulli_": {"p": 0.5},
    "exponential_": {"lambd": 1.0}, "cauchy_": {"median": 0.0, "sigma": 1.0}, "log_normal_": {"mean": 1.0, "std": 2.0},
}
"""The arguments of methods that have a default for each."""
_FILLED: Final = {"rand": ("uniform_", 0.0, 1.0), "randn": ("normal_", 0.0, 1.0)}


def _generator(frame: Frame, kwargs: dict[str, Value]) -> int | None:
    """The number of the generator among the arguments of a call, guarded; None where no graph draws from it."""
    given = kwargs.get("generator")
    return None if given is None else _guarded(frame, realize(frame, given))


def _guarded(frame: Frame, owner: Value) -> int | None:
    """The number of a generator that a graph draws from, guarded; None of anything else."""
    capture = frame.capture
    if isinstance(owner, MadeGeneratorValue):
        return owner.number
    if (
        not isinstance(owner, ObjectValue)
        or type(owner.obj) is not torch.Generator
        or owner.source is None
        or owner.obj.device.type != "cpu"
        or not torch.Generator.__weakrefoffset__  # as in torch 2.11: nothing could tell that it is gone
        or capture.transforms
        or capture.overrides.modes
    ):
        return None
    capture.add_guard(owner.source, native.C_ID, owner.obj)
    return GENERATORS.number_of(owner.obj)


def _numbers(frame: Frame, values: list[Value]) -> list[int | float] | None:
    """What is given as plain numbers; None if something else is."""
    given = [realize(frame, value) for value in values]
    known = [value.value for value in given if isinstance(value, ConstantValue)]
    return known if len(known) == len(given) and all(type(n) in (int, float, bool) for n in known) else None


def _drawn(
    frame: Frame, like: Value, given: list[Value], function: str, numbers: list[int | float],
    generator: int,
) -> Value | None:
    if not isinstance(like, TensorValue) or not _is_plain(like.fake):
        return None
    return frame.capture.graph.call(
        DRAWN_TENSOR,
        [
            like, ListValue(given), ConstantValue(function), ListValue([ConstantValue(n) for n in numbers]),
            ConstantValue(generator),
        ],
    )


def _is_plain(fake: torch.Tensor) -> bool:
    """Whether numbers are drawn into it in the order of its elements, as into one that lies row by row."""
    return fake.device.type == "cpu" and fake.layout is torch.strided and fake.is_contiguous()


def _made(frame: Frame, size: list[Value], kwargs: dict[str, Value], dtype: torch.dtype | None = None) -> Value:
    """Memory of this size, and of the dtype that is asked for."""
    options = {name: value for name, value in kwargs.items() if name in ("dtype", "device")}
    if dtype is not None:
        options.setdefault("dtype", ConstantValue(dtype))
    return frame.capture.graph.call(torch.empty, size, options)


def _of_size(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.rand` and `torch.randn`."""
    generator = _generator(frame, kwargs)
    if generator is None or not kwargs.keys() <= {"generator", "size", "dtype", "device"}:
        return None
    like = _made(frame, [*args, kwargs["size"]] if "size" in kwargs else args, kwargs)
    function, *numbers = _FILLED[name]
    is_float = isinstance(like, TensorValue) and like.fake.dtype.is_floating_point
    return _drawn(frame, like, [], function, numbers, generator) if is_float else None


def _whole(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.randint`."""
    generator = _generator(frame, kwargs)
    given = dict(zip(("low", "high", "size") if len(args) > 2 else ("high", "size"), args))
    given |= {name: kwargs[name] for name in ("low", "high", "size") if name in kwargs}
    known = 1 + len(args) + sum(name in kwargs for name in ("low", "high", "size", "dtype", "device"))
    if generator is None or not {"high", "size"} <= given.keys() or len(args) + len(kwargs) != known:
        return None
    bounds = _numbers(frame, [given.get("low", ConstantValue(0)), given["high"]])
    if bounds is None or not all(type(n) is int for n in bounds) or bounds[0] >= bounds[1]:
        return None
    return _drawn(frame, _made(frame, [given["size"]], kwargs, torch.int64), [], "random_", bounds, generator)


def _order(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.randperm`."""
    generator = _generator(frame, kwargs)
    if generator is None or len(args) != 1 or not kwargs.keys() <= {"generator", "dtype", "device"}:
        return None
    numbers = _numbers(frame, args)
    if numbers is None or type(numbers[0]) is not int or numbers[0] < 0:
        return None
    return _drawn(frame, _made(frame, args, kwargs, torch.int64), [], "randperm", numbers, generator)


def _normal(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.normal`."""
    generator = _generator(frame, kwargs)
    if generator is None or len(args) < 2:
        return None
    mean = realize(frame, args[0])
    if isinstance(mean, TensorValue):
        numbers = _numbers(frame, args[1:])
        if numbers is None or len(numbers) > 1 or len(kwargs) > 1 or not mean.fake.dtype.is_floating_point:
            return None
        return _drawn(frame, mean, [mean], "normal", numbers, generator)
    numbers, size = _numbers(frame, args[:2]), [*args[2:], *([kwargs["size"]] if "size" in kwargs else [])]
    if numbers is None or len(size) != 1 or not kwargs.keys() <= {"generator", "size", "dtype", "device"}:
        return None
    return _drawn(frame, _made(frame, size, kwargs), [], "normal_", numbers, generator)


def _of_probabilities(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.bernoulli` and `torch.multinomial`."""
    generator = _generator(frame, kwargs)
    given = realize(frame, args[0]) if args else None
    if generator is None or not isinstance(given, TensorValue) or not given.fake.dtype.is_floating_point:
        return None
    named = [kwargs[key] for key in ("num_samples", "replacement") if key in kwargs]
    numbers = _numbers(frame, [*args[1:], *named])
    if numbers is None or len(kwargs) != 1 + len(named):
        return None
    like: Value = given
    if name == "multinomial":
        if not 1 <= len(numbers) <= 2 or type(numbers[0]) is not int or not given.fake.dim():
            return None
        sizes = [ConstantValue(size) for size in given.fake.shape[:-1]]
        if not all(type(size.value) is int for size in sizes) or numbers[0] < 1:
            return None
        like = _made(frame, [ListValue([*sizes, ConstantValue(numbers[0])])], {}, torch.int64)
        numbers = [numbers[0], bool(numbers[1:] and numbers[1])]
    return _drawn(frame, like, [given], name, numbers, generator)


def _fill(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    generator = _generator(frame, kwargs)
    tensor, *rest = args
    if generator is None or not isinstance(tensor, TensorValue) or not tensor.fake.dtype.is_floating_point:
        return None
    given = {key: value for key, value in kwargs.items() if key != "generator"}
    if name in _DEFAULTS:
        defaults = _DEFAULTS[name]
        if len(rest) > len(defaults) or not given.keys() <= {*[*defaults][len(rest) :]}:
            return None
        rest = [*rest, *(given.get(key, ConstantValue(n)) for key, n in [*defaults.items()][len(rest) :])]
    elif given:
        return None
    numbers = _numbers(frame, rest)
    drawn = _drawn(frame, tensor, [], name, numbers, generator) if numbers is not None else None
    return None if drawn is None else tensor.torch_method(frame, "copy_", [drawn], {})


def _call_on_generator(
    frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    """`generator.manual_seed(number)`."""
    is_seed = name == "manual_seed" and len(args) == 1 and not kwargs
    seed = seed_in_tensor(frame, realize(frame, args[0])) if is_seed else None
    generator = None if seed is None else _guarded(frame, owner)
    if seed is None or generator is None:
        raise written_in_c(owner, name)
    _drawn(frame, _made(frame, [ListValue([])], {}), [seed], name, [], generator)
    return owner


def _make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`torch.Generator()`, on the CPU, which begins with the seed that torch gives all."""
    given = [realize(frame, value) for value in (*args, *kwargs.values())]
    devices = [value.value for value in given if isinstance(value, ConstantValue)]
    if len(given) > 1 or len(devices) < len(given) or not {*devices} <= {None, "cpu", torch.device("cpu")}:
        return None
    made = made_generator(frame, torch.Generator)
    if made is not None:
        _drawn(frame, _made(frame, [ListValue([])], {}), [], MAKE, [], made.number)
    return made


def _register() -> None:
    functions: dict[Any, Any] = {
        torch.rand: partial(_of_size, "rand"), torch.randn: partial(_of_size, "randn"), torch.randint: _whole,
        torch.randperm: _order, torch.normal: _normal, torch.bernoulli: partial(_of_probabilities, "bernoulli"),
        torch.multinomial: partial(_of_probabilities, "multinomial"),
    }
    for function, handler in functions.items():
        assert function not in HANDLERS
        HANDLERS[function] = handler
    for name in ("bernoulli", "multinomial"):
        METHODS.setdefault(name, partial(_of_probabilities, name))
    for name in IN_PLACE:
        METHODS.setdefault(name, partial(_fill, name))
    HANDLERS[torch.Generator] = _make
    KNOWN_METHODS[torch.Generator] = _call_on_generator


_register()
