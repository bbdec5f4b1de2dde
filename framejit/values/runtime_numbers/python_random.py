"""Numbers that `random.random()`, `random.uniform(a, b)`, `random.randint(a, b)` and the like give: the graph draws
them, and they are used as numbers that are read from tensors."""

from __future__ import annotations

import math
import random
from functools import partial
from typing import TYPE_CHECKING, Final

import torch

from framejit import _native as native
from framejit.backends.draws.python_random import DRAWN, FUNCTIONS
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.sequence import ListValue
from framejit.values.handlers import HANDLERS
from framejit.values.objects.inherited_methods import KNOWN_METHODS, written_in_c
from framejit.values.objects.user_object import ObjectValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_OWNER: Final = random.random.__self__  # type: ignore[attr-defined]
"""The generator that the functions of the module are methods of."""
_WHOLE: Final = ("randint", "randrange", "getrandbits")
_HINT: Final = "call it outside the compiled function, and pass in the number"


def _draw(name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    owner, *rest = args
    given = [realize(frame, value) for value in rest]
    refusal = Unsupported(f"random.{name}() draws a number that only the program's run tells", "FJ110", _HINT)
    if not isinstance(owner, ObjectValue) or owner.obj is not _OWNER or owner.source is None or kwargs:
        raise refusal
    if not all(isinstance(value, ConstantValue) and type(value.value) in (int, float) for value in given):
        raise refusal
    numbers = [value.constant() for value in given]
    bounds = _bounds(name, numbers)
    capture = frame.capture
    if bounds is None or capture.transforms or capture.overrides.modes:
        raise refusal
    capture.add_guard(owner.source, native.C_ID, owner.obj)
    graph, is_int = capture.graph, name in _WHOLE
    place = graph.call(
        torch.full, [ConstantValue(()), ConstantValue(0.0)],
        {"dtype": ConstantValue(torch.float64), "device": ConstantValue(torch.device("cpu"))},
    )
    drawn = graph.call(
        DRAWN, [ConstantValue(name), ListValue([ConstantValue(n) for n in numbers]), ConstantValue(is_int), place]
    )
    assert isinstance(drawn, TensorValue)
    capture.reads_numbers = True
    return ReadNumberValue(
        capture, drawn, frame.seq, refusal, bounds, is_argument=True, digits=None if is_int else torch.float64
    )


def _bounds(name: str, numbers: list[int | float]) -> tuple[float, float] | None:
    """What a number surely lies between; None where the function may raise, or give no int64."""
    count, most = len(numbers), 2**62
    if name == "random":
        return (0.0, 1.0) if not numbers else None
    if name not in _WHOLE:
        wanted = {"uniform": (2,), "triangular": (0, 2, 3), "expovariate": (1,)}.get(name, (2,))
        fits = count in wanted and all(math.isfinite(n) for n in numbers)
        needs_positive = name in ("expovariate", "betavariate", "gammavariate")
        return (-math.inf, math.inf) if fits and not (needs_positive and min(numbers) <= 0) else None
    if any(type(n) is not int or abs(n) > most for n in numbers):
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


KNOWN_METHODS[random.Random] = _call_on_generator
for _name in FUNCTIONS:
    _function = getattr(random.Random, _name)
    if hasattr(_function, "__code__"):
        HANDLERS[_function] = partial(_draw, _name)
