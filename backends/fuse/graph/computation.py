"""What is computed once, while a graph is compiled: as data, so that another process can do the same to its own
weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from typing import Any

import torch

from framejit.late_dataclass import dataclass


@dataclass(frozen=True, eq=False)
class Weight:
    """A frozen weight: an input of the graph by its position, and what it is."""

    position: int
    tensor: torch.Tensor


@dataclass(frozen=True, eq=False)
class Result:
    """A tensor that a computation gives: one of several, by its position, or the only one."""

    computation: Computation
    position: int | None = None


@dataclass(eq=False)
class Computation:
    """A function, and its arguments: weights, results of other computations, tensors made of numbers of the program,
    and plain data with these inside."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    _outcome: list[Any] = field(default_factory=list)

    def outcome(self) -> Any:
        """The function's result; it is called once."""
        if not self._outcome:
            self._outcome.append(
                self.function(*real(self.args), **{key: real(value) for key, value in self.kwargs.items()})
            )
        return self._outcome[0]

    def operands(self) -> Iterator[Weight | Result]:
        """The weights and results that it is computed from."""
        yield from _operands((*self.args, *self.kwargs.values()))


def real(value: Any) -> Any:
    """A value with tensors in place of weights and results."""
    if isinstance(value, Weight):
        return value.tensor
    if isinstance(value, Result):
        outcome = value.computation.outcome()
        return outcome if value.position is None else outcome[value.position]
    return type(value)(map(real, value)) if type(value) in (list, tuple) else value


def behind(*computations: Computation) -> list[Computation]:
    """Computations with all that they are computed from, each behind what it takes."""
    found: dict[Computation, None] = {}
    waiting = [(computation, False) for computation in reversed(computations)]
    while waiting:
        computation, is_ready = waiting.pop()
        if is_ready:
            found[computation] = None
        elif computation not in found:
            waiting.append((computation, True))
            waiting += [
                (operand.computation, False) for operand in computation.operands() if isinstance(operand, Result)
            ]
    return [*found]


def weights_of(*computations: Computation) -> set[int]:
    """The positions of the weights that they depend on."""
    return {
        operand.position
        for computation in behind(*computations)
        for operand in computation.operands()
        if isinstance(operand, Weight)
    }


def _operands(values: Any) -> Iterator[Weight | Result]:
    for value in values:
        if isinstance(value, (Weight, Result)):
            yield value
        elif type(value) in (list, tuple):
            yield from _operands(value)


@contextmanager
def plainly() -> Iterator[None]:
    """Without autograd, inference tensors and autocast: what is computed here outlives the call, and autocast is in the
    graph already."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C._DisableAutocast())
        yield
