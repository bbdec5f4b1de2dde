"""Random numbers of `np.random`, and of generators that the program made: the graph draws them. A number is used as one
that is read from a tensor, an array as any other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit import _native as native
from framejit.backends.draws.numpy_random import DRAWN_BY_NUMPY, draw, number_of
from framejit.fakes.elementwise_strides import contiguous
from framejit.signals import NotConstant, Unsupported
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.ndarray import ArrayValue, NumberValue
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import plain as plain_copy
from framejit.values.handlers import HANDLERS
from framejit.values.objects.functions.c_function import CFunctionValue
from framejit.values.objects.made_generators import MadeGeneratorValue, made_generator
from framejit.values.objects.user_object import ObjectValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.tensors.seeds import seed_in_tensor
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture, Frame

_PARAMETERS: Final[dict[str, str]] = {
    "beta": "a b size", "binomial": "n p size", "chisquare": "df size", "choice": "a size replace",
    "exponential": "scale size", "gamma": "shape scale size", "geometric": "p size", "gumbel": "loc scale size",
    "laplace": "loc scale size", "logistic": "loc scale size", "lognormal": "mean sigma size",
    "normal": "loc scale size", "permutation": "x", "poisson": "lam size", "rand": "", "randint": "low high size",
    "randn": "", "random": "size", "random_sample": "size", "standard_exponential": "size", "standard_normal": "size",
    "triangular": "left mode right size", "uniform": "low high size",
}
"""The methods whose numbers a graph draws, and their parameters; `rand` and `randn` take any number of sizes."""
_OF_GENERATORS: Final[dict[str, str]] = {
    name: parameters for name, parameters in _PARAMETERS.items()
    if name not in ("rand", "randn", "randint", "random_sample")
} | {"integers": "low high size endpoint"}
"""Those of `np.random.Generator`."""
_METHODS: Final[dict[int, tuple[type, str, list[str]]]] = {
    id(vars(cls)[name]): (cls, name, parameters.split())
    for cls, methods in ((np.random.RandomState, _PARAMETERS), (np.random.Generator, _OF_GENERATORS))
    for name, parameters in methods.items()
}
_WHOLE: Final = ("randint", "integers")
_MOST: Final = 1 << 16
"""As many numbers are drawn while capturing, to see of which kind they are."""
_LIKE: Final[dict[type, Any]] = {
    np.random.RandomState: np.random.RandomState, np.random.Generator: np.random.default_rng
}
"""What makes a generator of each class, to see of which kind its numbers are."""
_KINDS: Final = (np.ndarray, int, float, np.int64)
_INT64: Final = (-(2.0**63), 2.0**63 - 1)


class _MethodValue(CFunctionValue):
    """A method of a generator."""

    def describe(self) -> str:
        return f"function np.random.{self.function.__name__}"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        cls, name, parameters = _METHODS[id(self.function)]
        refusal = _refusal(name)
        owner, *given = [realize(frame, value) for value in args]
        capture = frame.capture
        if not isinstance(owner, ObjectValue) or owner.cls is not cls:
            raise refusal
        named = {key: realize(frame, value) for key, value in kwargs.items()}
        found = _arguments(frame, name, parameters, given, named)
        if found is None or capture.transforms or capture.overrides.modes:
            raise refusal
        return _drawn(frame, owner, name, *found, refusal)


class _MakeValue(CFunctionValue):
    """`np.random.default_rng`."""

    def describe(self) -> str:
        return "function np.random.default_rng"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        made = _make(np.random.Generator, "default_rng", frame, args, kwargs)
        if made is None:
            raise _refusal("default_rng")
        return made


class _SeedValue(CFunctionValue):
    """`np.random.seed`."""

    def describe(self) -> str:
        return "function np.random.seed"

    def call(self, frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
        given = [*args, *kwargs.values()]
        seed = realize(frame, given[0]) if len(given) == 1 and kwargs.keys() <= {"seed"} else None
        known = isinstance(seed, ConstantValue) and type(seed.value) is int and 0 <= seed.value < 2**32
        capture = frame.capture
        if seed is None or not known or capture.transforms or capture.overrides.modes:
            raise _refusal("seed")
        _draw(frame, 0, "seed", [seed.constant()], [], None, np.zeros((), dtype=np.int64))
        return NONE


_OF_FUNCTIONS: Final[dict[int, type[CFunctionValue]]] = {
    id(np.random.seed): _SeedValue, id(np.random.default_rng): _MakeValue
}


@wraps(type(np.random.RandomState.rand), type(np.random.Generator.random), type(np.random.seed), first=True)
def _existing_function(capture: Capture, obj: Any, source: Source) -> Value | None:
    of_value = _MethodValue if id(obj) in _METHODS else _OF_FUNCTIONS.get(id(obj))
    if of_value is None:
        return None
    capture.add_guard(source, native.C_ID, obj)
    return of_value(obj, source)


def _make(
    cls: type, name: str, frame: Frame, args: list[Value], kwargs: dict[str, Value]
) -> MadeGeneratorValue | None:
    """`np.random.default_rng(seed)` and `np.random.RandomState(seed)`."""
    given = [*args, *kwargs.values()]
    seed = realize(frame, given[0]) if len(given) == 1 and kwargs.keys() <= {"seed"} else NONE
    if isinstance(seed, ConstantValue) and (type(seed.value) is not int or not 0 <= seed.value < 2**32):
        return None  # numpy has a say
    number = seed_in_tensor(frame, seed)
    made = None if number is None else made_generator(frame, cls)
    if made is not None and number is not None:
        of = [ConstantValue(made.number), ConstantValue(name), ListValue([]), ListValue([]), NONE, number]
        frame.capture.graph.call(DRAWN_BY_NUMPY, of)
    return made


def _refusal(name: str) -> Unsupported:
    return Unsupported(
        f"np.random.{name}() draws numbers that only the program's run tells", "FJ110",
        "call it outside the compiled function, and pass in the numbers",
    )


def _arguments(
    frame: Frame, name: str, parameters: list[str], args: list[Value], kwargs: dict[str, Value]
) -> tuple[list[Any], list[str], tuple[int, ...] | None] | None:
    """The numbers of a call, the names of the last of them, and the size; None where it has something else."""
    try:
        given = [plain_copy(frame, value) for value in args]
        named = {key: plain_copy(frame, value) for key, value in kwargs.items()}
    except NotConstant:
        return None
    if parameters:
        if len(given) > len(parameters) or not named.keys() <= {*parameters[len(given) :]}:
            return None
        named = dict(zip(parameters, given)) | named
        named, given = {key: named[key] for key in parameters if key in named}, []
    elif named:
        return None
    size = named.pop("size", None)
    sizes = (size,) if type(size) is int else size
    if sizes is not None and not (isinstance(sizes, (tuple, list)) and sizes and all(type(n) is int for n in sizes)):
        return None
    if name in _WHOLE and named.get("high", 0) is None:
        del named["high"]
    numbers = [*given, *named.values()]
    if not all(type(n) in (int, float, bool) and math.isfinite(n) and abs(n) < 2**62 for n in numbers):
        return None
    return numbers, [*named], None if sizes is None else tuple(sizes)


def _drawn(
    frame: Frame, owner: ObjectValue, name: str, numbers: list[Any], names: list[str], size: tuple[int, ...] | None,
    refusal: Unsupported,
) -> Value:
    sizes = size if size is not None else numbers if not names else numbers[:1] if name == "permutation" else ()
    if not all(n >= 0 for n in sizes) or math.prod(sizes) > _MOST:
        raise refusal
    try:
        example = draw(_LIKE[owner.cls](0), name, numbers, names, size)
    except (TypeError, ValueError, OverflowError):
        raise refusal from None
    array = np.asarray(example)
    is_array = type(example) is np.ndarray
    if torch_dtype(array.dtype) is None or not array.size or type(example) not in _KINDS:
        raise refusal
    number = _number(frame, owner)
    if number is None:
        raise refusal
    drawn = _draw(frame, number, name, numbers, names, size, array)
    if is_array:
        assert drawn.fake.stride() == contiguous(array.shape)
        return ArrayValue(drawn)
    if isinstance(example, np.generic):
        return NumberValue(drawn)
    frame.capture.reads_numbers = True
    return ReadNumberValue(
        frame.capture, drawn, frame.seq, refusal, _bounds(name, numbers, example), is_argument=True,
        digits=None if type(example) is int else torch.float64,
    )


def _number(frame: Frame, owner: ObjectValue) -> int | None:
    """The number by which graphs know a generator, which is guarded."""
    if isinstance(owner, MadeGeneratorValue):
        return owner.number
    if type(owner.obj) not in _LIKE or owner.source is None:
        return None
    frame.capture.add_guard(owner.source, native.C_ID, owner.obj)
    return number_of(owner.obj)


def _draw(
    frame: Frame, generator: int, name: str, numbers: list[Any], names: list[str], size: tuple[int, ...] | None,
    example: np.ndarray[Any, Any],
) -> TensorValue:
    """What the graph draws; `example` is an array of its kind."""
    graph = frame.capture.graph
    like = graph.call(
        torch.empty, [TupleValue([ConstantValue(n) for n in example.shape])],
        {"dtype": ConstantValue(torch_dtype(example.dtype)), "device": ConstantValue(torch.device("cpu"))},
    )
    drawn = graph.call(
        DRAWN_BY_NUMPY,
        [
            ConstantValue(generator), ConstantValue(name), ListValue([ConstantValue(n) for n in numbers]),
            ListValue([ConstantValue(n) for n in names]),
            ConstantValue(None) if size is None else ListValue([ConstantValue(n) for n in size]), like,
        ],
    )
    assert isinstance(drawn, TensorValue)
    return drawn


def _bounds(name: str, numbers: list[Any], example: float) -> tuple[float, float]:
    """What a number surely lies between."""
    if name in ("randint", "choice"):
        low, high = numbers if name == "randint" and len(numbers) == 2 else (0, numbers[0])
        return low, high - 1
    if name in ("rand", "random", "random_sample"):
        return 0.0, 1.0
    return _INT64 if type(example) is int else (-math.inf, math.inf)


HANDLERS[np.random.RandomState] = lambda frame, args, kwargs: _make(
    np.random.RandomState, "RandomState", frame, args, kwargs
)
