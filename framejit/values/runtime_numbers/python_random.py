"""Numbers that `random.random()`, `random.uniform(a, b)`, `random.randint(a, b)` and the like give: the graph draws
them, and they are used as numbers that are read from tensors."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native as native
from framejit.backends.draws.python_random import DRAWN, DRAWN_NUMBERS, FUNCTIONS, GENERATORS, MAKE
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.made_generators import MadeGeneratorValue, made_generator
from framejit.values.objects.user_object import ObjectValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.seeds import seed_in_tensor
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MOST: Final = 2**62
"""Ints up to here are drawn in int64."""
_WHOLE: Final = ("randint", "randrange", "getrandbits")
_SEVERAL: Final = ("sample", "choices", "shuffle")
_MOST_GIVEN: Final = 4096
"""From as many numbers a graph chooses."""
_MOST_DRAWN: Final = 64
"""As many numbers are drawn at once."""
_HINT: Final = "call it outside the compiled function, and pass in the number"


def _refusal(name: str) -> Unsupported:
    return Unsupported(f"random.{name}() draws a number that only the program's run tells", "FJ110", _HINT)


def _generator(frame: Frame, owner: Value) -> int | None:
    """The number of the generator that a method is called on, guarded; None where no graph draws from it."""
    capture = frame.capture
    if isinstance(owner, MadeGeneratorValue):
        return owner.number
    if not isinstance(owner, ObjectValue) or type(owner.obj) is not random.Random or owner.source is None:
        return None
    if capture.transforms or capture.overrides.modes:
        return None
    capture.add_guard(owner.source, native.C_ID, owner.obj)
    return GENERATORS.number_of(owner.obj)


def place_of_numbers(frame: Frame) -> Value:
    """A tensor that says where numbers are drawn."""
    return frame.capture.graph.call(
        torch.full, [ConstantValue(()), ConstantValue(0.0)],
        {"dtype": ConstantValue(torch.float64), "device": ConstantValue(torch.device("cpu"))},
    )


def _draw(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    owner, *rest = args
    given = [realize(frame, value) for value in rest]
    refusal = _refusal(name)
    if kwargs or not all(isinstance(value, ConstantValue) and type(value.value) in (int, float) for value in given):
        raise refusal
    numbers = [value.constant() for value in given]
    bounds = _bounds(name, numbers)
    generator = None if bounds is None else _generator(frame, owner)
    if bounds is None or generator is None:
        raise refusal
    return _drawn(frame, name, numbers, name in _WHOLE, generator, bounds)


def _drawn(
    frame: Frame, name: str, numbers: list[int | float], is_int: bool, generator: int, bounds: tuple[float, float]
) -> Value:
    drawn = frame.capture.graph.call(
        DRAWN,
        [
            ConstantValue(name), _list_of(numbers), ConstantValue(is_int), ConstantValue(generator),
            place_of_numbers(frame),
        ],
    )
    return _read(frame, name, drawn, is_int, bounds)


def _read(frame: Frame, name: str, drawn: Value, is_int: bool, bounds: tuple[float, float]) -> Value:
    """A number that was drawn, as one that is read from a tensor."""
    assert isinstance(drawn, TensorValue)
    frame.capture.reads_numbers = True
    return ReadNumberValue(
        frame.capture, drawn, frame.seq, _refusal(name), bounds, is_argument=True,
        digits=None if is_int else torch.float64,
    )


def _list_of(numbers: Sequence[int | float]) -> Value:
    return ListValue([ConstantValue(n) for n in numbers])


def _numbers(frame: Frame, value: Value) -> list[int | float] | None:
    """What a list, tuple or range holds, where it is ints or floats alone."""
    value = realize(frame, value)
    if isinstance(value, ConstantValue) and type(value.value) in (range, tuple) and len(value.value) <= _MOST_GIVEN:
        found = [*value.value]
    elif isinstance(value, (ListValue, TupleValue)) and value.python_type() in (list, tuple):
        items = [realize(frame, item) for item in value.items]
        if len(items) > _MOST_GIVEN or not all(isinstance(item, ConstantValue) for item in items):
            return None
        found = frame.constants(items)
    else:
        return None
    kinds = {type(n) for n in found}
    fits = kinds in ({int}, {float}) and all(math.isfinite(n) and abs(n) <= _MOST for n in found)
    return found if fits else None


def _seed(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`random.seed` with an int."""
    seed = realize(frame, args[1]) if len(args) == 2 and not kwargs else NONE
    known = isinstance(seed, ConstantValue) and type(seed.value) is int and abs(seed.value) <= _MOST
    generator = _generator(frame, args[0]) if known else None
    if generator is None:
        raise _refusal("seed")
    _drawn(frame, "seed", [seed.constant()], True, generator, (0, 0))
    return NONE


def _choose(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`random.choice` of numbers."""
    numbers = _numbers(frame, args[1]) if len(args) == 2 and not kwargs else None
    generator = None if numbers is None else _generator(frame, args[0])
    if numbers is None or generator is None:
        raise _refusal("choice")
    bounds = (min(numbers), max(numbers))
    return _drawn(frame, "choice", numbers, type(numbers[0]) is int, generator, bounds)


def _choose_several(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`random.sample`, `random.choices` and `random.shuffle` of numbers."""
    owner, *rest = args
    order = {"sample": ("population", "k"), "choices": ("population", "weights"), "shuffle": ("x",)}[name]
    named = {key for key in (*order[len(rest) :], "k") if name != "shuffle"}
    refusal = _refusal(name)
    if len(rest) > len(order) or not kwargs.keys() <= named:
        raise refusal
    given = dict(zip(order, rest)) | kwargs
    source = realize(frame, given[order[0]]) if order[0] in given else None
    numbers = None if source is None else _numbers(frame, source)
    if numbers is None or source is None:
        raise refusal
    weights = _weights(frame, given.get("weights"), len(numbers))
    count = _count(frame, name, given.get("k"), len(numbers))
    generator = None if weights is None or count is None else _generator(frame, owner)
    if weights is None or count is None or generator is None or name == "shuffle" and type(source) is not ListValue:
        raise refusal
    is_int = type(numbers[0]) is int
    graph = frame.capture.graph
    drawn = graph.call(
        DRAWN_NUMBERS,
        [
            ConstantValue(name), _list_of(numbers), _list_of(weights), ConstantValue(count), ConstantValue(is_int),
            ConstantValue(generator), place_of_numbers(frame),
        ],
    )
    bounds = (min(numbers), max(numbers))
    numbered = [graph.call("select", [drawn, ConstantValue(0), ConstantValue(n)], is_method=True) for n in range(count)]
    results = [_read(frame, name, number, is_int, bounds) for number in numbered]
    if not isinstance(source, ListValue) or name != "shuffle":
        return ListValue(results)
    for n, result in enumerate(results):
        source.call_method(frame, "__setitem__", [ConstantValue(n), result], {})
    return NONE


def _count(frame: Frame, name: str, given: Value | None, available: int) -> int | None:
    """How many numbers are drawn; None where the call may raise, or they are too many."""
    if given is None:
        count: Any = {"sample": None, "choices": 1, "shuffle": available}[name]
    else:
        value = realize(frame, given)
        count = value.value if isinstance(value, ConstantValue) else None
    most = min(available, _MOST_DRAWN) if name == "sample" else _MOST_DRAWN
    return count if type(count) is int and 0 < count <= most else None


def _weights(frame: Frame, given: Value | None, count: int) -> list[int | float] | None:
    """The weights of `random.choices`, none where there are none; None where the call may raise."""
    value = None if given is None else realize(frame, given)
    if value is None or is_none(value):
        return []
    found = _numbers(frame, value)
    return found if found is not None and len(found) == count and min(found) >= 0 and sum(found) > 0 else None


def _bounds(name: str, numbers: list[int | float]) -> tuple[float, float] | None:
    """What a number surely lies between; None where the function may raise, or give no int64."""
    count = len(numbers)
    if name == "random":
        return (0.0, 1.0) if not numbers else None
    if name not in _WHOLE:
        wanted = {"uniform": (2,), "triangular": (0, 2, 3), "expovariate": (1,)}.get(name, (2,))
        fits = count in wanted and all(math.isfinite(n) for n in numbers)
        needs_positive = name in ("expovariate", "betavariate", "gammavariate")
        return (-math.inf, math.inf) if fits and not (needs_positive and min(numbers) <= 0) else None
    if any(type(n) is not int or abs(n) > _MOST for n in numbers):
        return None
    if name == "getrandbits":
        return (0, 2 ** numbers[0] - 1) if count == 1 and 0 < numbers[0] < 62 else None
    if name == "randint":
        return (numbers[0], numbers[1]) if count == 2 and numbers[0] <= numbers[1] else None
    if count not in (1, 2, 3) or count == 3 and numbers[2] == 0:
        return None
    places = range(*numbers)  # type: ignore[arg-type]
    return (min(places[0], places[-1]), max(places[0], places[-1])) if places else None


def _call_on_generator(
    frame: Frame, owner: ObjectValue, name: str, args: list[Value], kwargs: dict[str, Value]
) -> Value:
    if name not in FUNCTIONS:
        raise written_in_c(owner, name)
    return _draw(name, frame, [owner, *args], kwargs)


def _make(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """`random.Random(seed)`."""
    seed = realize(frame, args[0]) if len(args) == 1 and not kwargs else NONE
    number = seed_in_tensor(frame, seed)
    made = None if number is None else made_generator(frame, random.Random)
    if made is not None and number is not None:
        is_int, generator = ConstantValue(True), ConstantValue(made.number)
        frame.capture.graph.call(DRAWN, [ConstantValue(MAKE), ListValue([]), is_int, generator, number])
    return made


HANDLERS[random.Random] = _make
KNOWN_METHODS[random.Random] = _call_on_generator
HANDLERS[random.Random.choice], HANDLERS[random.Random.seed] = _choose, _seed
HANDLERS.update({getattr(random.Random, name): partial(_choose_several, name) for name in _SEVERAL})
for _name in FUNCTIONS - {"choice"}:
    _function = getattr(random.Random, _name)
    if hasattr(_function, "__code__"):
        HANDLERS[_function] = partial(_draw, _name)
