"""Functions of Python's on numbers that stand in tensors without dimensions, as an operation of the graph.

ATen's own give other last digits than `math.exp` or `number ** 0.5`, and have values where Python raises. So these call
Python. What raises here, or gives another type, goes on in plain Python, like whatever raises in a graph.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

WHOLE: Final[dict[str, Callable[..., Any]]] = {
    "pow": operator.pow, "floordiv": operator.floordiv, "mod": operator.mod, "bits_and": operator.and_,
    "bits_or": operator.or_, "bits_xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
}
"""Operators, which give ints where all their operands are."""
FLOATS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (
        math.sqrt, math.exp, math.expm1, math.log, math.log2, math.log10, math.log1p, math.cos, math.sin, math.tan,
        math.acos, math.asin, math.atan, math.atan2, math.cosh, math.sinh, math.tanh, math.erf, math.erfc, math.gamma,
        math.lgamma, math.radians, math.degrees, math.hypot, math.fmod, math.copysign,
    )
} | {"math_pow": math.pow, "round": round}
"""What gives floats."""

_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define("of_numbers(str text, Tensor[] numbers, bool gives_int) -> Tensor")
OF_NUMBERS: Final[torch._ops.OpOverload] = torch.ops.framejit.of_numbers.default
"""(an expression of x0, x1 and so on, these numbers, of float64 or int64 on the CPU, whether it gives an int): its
result, in one of these dtypes."""


@functools.cache
def _function(text: str, count: int) -> Callable[..., int | float]:
    made: Callable[..., int | float] = eval(f"lambda {', '.join(f'x{n}' for n in range(count))}: {text}", _NAMES)
    return made


def total(*numbers: int | float) -> int | float:
    """The sum of numbers, as `sum` gives it for a list of them."""
    return sum(numbers)


_NAMES: Final = {**WHOLE, **FLOATS, total.__name__: total, "inf": math.inf, "nan": math.nan}


@functools.cache
def answer_of_kept(text: str, answer: bool) -> Callable[[Any], bool]:
    """The check (of kind C_PY) that a question about `kept`, the number in a tensor, still has this answer; one object
    for one question, so that guards deduplicate. It says what it asks as `of_kept`."""
    ask = eval(f"lambda kept: {text}", {**_NAMES, "counted": _counted})

    def is_answered_so(tensor: Any) -> bool:
        if not isinstance(tensor, torch.Tensor) or tensor.numel() != 1:
            return False
        try:
            return bool(ask(tensor.item()) is answer)
        except (ArithmeticError, TypeError, ValueError):  # which the program is to raise
            return False

    is_answered_so.__name__ = f"torch_optim_is_answered_{answer}_by"  # as recompiles are told of
    is_answered_so.of_kept = text, answer  # type: ignore[attr-defined]
    return is_answered_so


def _counted(count: float, more: int) -> float:
    """A count of steps, in a tensor of float32 or wider, to which some are added."""
    if not (count >= 0 and count == int(count) and count + more <= 2**24):
        raise ValueError("no count of steps that is exact")
    return count + more


def call_of_numbers(text: str, numbers: Sequence[torch.Tensor], gives_int: bool) -> torch.Tensor:
    """What the operation does; plans call this, which takes half as long as by way of torch's dispatcher."""
    result = _function(text, len(numbers))(*[number.item() for number in numbers])
    if type(result) is not (int if gives_int else float):
        raise TypeError(f"{text} gives another type for these numbers")
    return torch.scalar_tensor(result, dtype=torch.int64 if gives_int else torch.float64, device="cpu")


def _shape(text: str, numbers: Sequence[torch.Tensor], gives_int: bool) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64 if gives_int else torch.float64, device=numbers[0].device)


_LIBRARY.impl("of_numbers", call_of_numbers, "CPU")
_LIBRARY.impl("of_numbers", _shape, "Meta")
