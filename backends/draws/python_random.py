"""Numbers of Python's `random`, drawn by an operation of the graph, in its place among the others.

What a function of `random` gives is a tensor without dimensions, as a number that is read from a tensor is. Where a
graph raises, or is tried, the state of `random` is put back as that of torch's generators is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import fx

FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    name: getattr(random, name)
    for name in (
        "random", "uniform", "triangular", "gauss", "normalvariate", "expovariate", "betavariate", "gammavariate",
        "lognormvariate", "randint", "randrange", "getrandbits",
    )
}
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "drawn_number(str function, Scalar[] arguments, bool is_int, Tensor like) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
DRAWN: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_number.default
"""(a function of `random`, its arguments, whether it gives an int, a tensor that says where): the number, in int64 or
float64 on the CPU."""


def _draw(function: str, arguments: Sequence[int | float], is_int: bool, like: torch.Tensor) -> torch.Tensor:
    number = FUNCTIONS[function](*arguments)
    if type(number) is not (int if is_int else float):
        raise TypeError(f"random.{function} gives another type")
    return torch.scalar_tensor(number, dtype=torch.int64 if is_int else torch.float64, device="cpu")


def _shape(function: str, arguments: Sequence[int | float], is_int: bool, like: torch.Tensor) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64 if is_int else torch.float64, device=like.device)


_LIBRARY.impl("drawn_number", _draw, "CPU")
_LIBRARY.impl("drawn_number", _shape, "Meta")


class PythonGenerator:
    """Python's `random`, with the methods of a torch.Generator."""

    device = "python"

    def get_state(self) -> Any:
        return random.getstate()

    def set_state(self, state: Any) -> None:
        random.setstate(state)


def draws_by_python(graph: fx.Graph) -> bool:
    """Whether a graph draws numbers of `random`."""
    return any(node.target is DRAWN for node in graph.nodes)
