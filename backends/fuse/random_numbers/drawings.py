"""Which of ATen's operations draw random numbers that kernels can make instead, and what these are.

One place says so for graphs and for what runs them again as ATen: the draws of a graph are numbered in their order, and
have to be the same both times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import argument_of
from framejit.backends.fuse.random_numbers.operations import BERNOULLI, DTYPES, NORMAL, UNIFORM, computed_in
from framejit.backends.fuse.sizes.symbolic_size import as_size, hint
from framejit.late_dataclass import dataclass

aten = torch.ops.aten


class Gives(Enum):
    """What an operation gives of the numbers that it draws."""

    NUMBERS = "the numbers"
    WRITTEN = "its first argument, into which it has written them"
    LEFT = "what they leave of its first argument"
    LEFT_AND_MASK = "what they leave of its first argument, and the numbers"


@dataclass(frozen=True)
class Drawing:
    """What an operation draws. `operation`: of those in `operations.py`, with its parameters; `mean` and the like are
    numbers."""

    operation: torch._ops.OpOverload
    parameters: tuple[float, ...]
    gives: Gives

    def arguments(
        self, key: Any, draw: int, sizes: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the operation takes, for a result like that."""
        named = {} if self.operation is BERNOULLI else {"dtype": dtype}
        return (key, draw, [*sizes], [*strides], *self.parameters), named


_UNIFORM: Final = {
    aten.rand.default: Gives.NUMBERS, aten.rand_like.default: Gives.NUMBERS, aten.uniform.default: Gives.NUMBERS,
    aten.uniform_.default: Gives.WRITTEN,
}
_NORMAL: Final = {
    aten.randn.default: Gives.NUMBERS, aten.randn_like.default: Gives.NUMBERS,
    aten.normal_functional.default: Gives.NUMBERS, aten.normal_.default: Gives.WRITTEN,
}
_BERNOULLI: Final = {aten.bernoulli.p: Gives.NUMBERS, aten.bernoulli_.float: Gives.WRITTEN}
_DROPOUT: Final = {aten.native_dropout.default: Gives.LEFT_AND_MASK, aten.dropout.default: Gives.LEFT}

DRAWING: Final = frozenset((*_UNIFORM, *_NORMAL, *_BERNOULLI, *_DROPOUT))
"""The operations that may draw what kernels can make. But for those of `MAKING`, what they give looks like their first
argument, unless they are told otherwise."""
MAKING: Final = frozenset((aten.rand.default, aten.randn.default))


def scale_of_dropout(p: float, dtype: torch.dtype) -> float:
    """What dropout multiplies with what it leaves, on GPUs: a quotient of the precision that its kernel computes in
    (torch/aten/src/ATen/native/cuda/Dropout.cu). `p`: the share that is dropped."""
    return float(1 / torch.tensor(1 - p, dtype=computed_in(dtype)))


def drawing_of(
    operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any
) -> Drawing | None:
    """What an operation draws from the default generator of a device; None if it draws nothing, or what kernels don't
    make, or raises for its arguments.

    result: What it gives, a value or tensor, or what that looks like; of several the first.
    """

    def number(name: str, otherwise: float) -> float | None:
        given = argument_of(operation, args, kwargs, name, otherwise)
        return float(given) if type(given) in (int, float) else None

    if argument_of(operation, args, kwargs, "generator", None) is not None:
        return None
    if operation in _DROPOUT:
        x, p, is_training = args[0], args[1], args[2]
        if x.dtype not in DTYPES or type(p) is not float or not 0 < p < 1 or is_training is not True:
            return None  # nothing is drawn, or an error raised
        if any(type(size) is int and size == 0 for size in x.shape):
            return None
        return Drawing(BERNOULLI, (1 - p,), _DROPOUT[operation])
    gives = _BERNOULLI.get(operation) or _UNIFORM.get(operation) or _NORMAL.get(operation)
    if gives is None or gives is Gives.WRITTEN and not fills_memory(args[0]):
        return None
    if operation in _BERNOULLI:
        p = number("p", 0.5)
        return None if p is None or not 0 <= p <= 1 else Drawing(BERNOULLI, (p,), gives)
    if result.dtype not in DTYPES:
        return None
    if operation in _UNIFORM:
        low, high = number("from", 0), number("to", 1)
        return None if low is None or high is None or not low <= high else Drawing(UNIFORM, (low, high), gives)
    mean, std = number("mean", 0), number("std", 1)
    return None if mean is None or std is None or not 0 <= std else Drawing(NORMAL, (mean, std), gives)


def fills_memory(tensor: Any) -> bool:
    """Whether a value or tensor has each element in a place of its own, without gaps."""
    layout = sorted((hint(as_size(stride)), hint(as_size(size))) for stride, size in zip(tensor.stride(), tensor.shape))
    step = 1
    for stride, size in layout:
        if size != 1 and stride != step:
            return False
        step *= size
    return True
