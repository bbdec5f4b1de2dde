"""Numbers of Python's `random`, and of generators that the program made (`random.Random()`), drawn by an operation of
the graph, in its place among the others.

What a function of `random` gives is a tensor without dimensions, as a number that is read from a tensor is; several
numbers are a tensor of one. Where a graph raises, or is tried, the state of the generator is put back as that of
torch's generators is.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.draws.made_generators import MADE
from framejit.backends.draws.numbered import Numbered
from framejit.backends.own_operations import PYTHON

GENERATORS: Final[Numbered[random.Random]] = Numbered()
GENERATORS.number_of(random._inst)
"""The generator of the module has number 0 in each process."""
FUNCTIONS: Final = frozenset((
    "random", "uniform", "triangular", "gauss", "normalvariate", "expovariate", "betavariate", "gammavariate",
    "lognormvariate", "randint", "randrange", "getrandbits", "choice",
))  # fmt: skip
"""Methods of generators that give one number."""
MAKE: Final = "Random"
"""What makes a generator, in their place: its seed is what the tensor says."""
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "drawn_number(str function, Scalar[] arguments, bool is_int, int generator, Tensor like) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_LIBRARY.define(
    "drawn_numbers(str function, Scalar[] numbers, Scalar[] weights, int count, bool is_int, int generator, "
    "Tensor like) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
DRAWN: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_number.default
"""(a method, its arguments, whether it gives an int, the number of the generator, a tensor that says where): the
number, in int64 or float64 on the CPU. `choice` is given what it chooses from; what `seed` and `MAKE` give says
nothing."""
DRAWN_NUMBERS: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_numbers.default
"""(`sample`, `choices` or `shuffle`, the numbers that it is given, the weights of `choices`, how many it gives, whether
they are ints, the number of the generator, a tensor that says where): the numbers, as a tensor of one dimension."""


def _draw(
    function: str, arguments: Sequence[int | float], is_int: bool, generator: int, like: torch.Tensor
) -> torch.Tensor:
    if function == MAKE:
        MADE.put(generator, random.Random(int(like.item())))
        return torch.zeros((), dtype=torch.int64)
    method = getattr(GENERATORS[generator], function)
    number = method(arguments) if function == "choice" else method(*arguments)
    if function == "seed":
        number = 0
    if type(number) is not (int if is_int else float):
        raise TypeError(f"random.{function} gives another type")
    return torch.scalar_tensor(number, dtype=torch.int64 if is_int else torch.float64, device="cpu")


def _draw_several(
    function: str, numbers: Sequence[int | float], weights: Sequence[int | float], count: int, is_int: bool,
    generator: int, like: torch.Tensor,
) -> torch.Tensor:
    method, drawn = getattr(GENERATORS[generator], function), list(numbers)
    if function == "shuffle":
        method(drawn)
    elif function == "choices":
        drawn = method(drawn, weights or None, k=count)
    else:
        drawn = method(drawn, count)
    return torch.tensor(drawn, dtype=torch.int64 if is_int else torch.float64, device="cpu")


def _shape(
    function: str, arguments: Sequence[int | float], is_int: bool, generator: int, like: torch.Tensor
) -> torch.Tensor:
    return torch.empty((), dtype=torch.int64 if is_int else torch.float64, device=like.device)


def _shape_of_several(
    function: str, numbers: Sequence[int | float], weights: Sequence[int | float], count: int, is_int: bool,
    generator: int, like: torch.Tensor,
) -> torch.Tensor:
    return torch.empty(count, dtype=torch.int64 if is_int else torch.float64, device=like.device)


_LIBRARY.impl("drawn_number", _draw, "CPU")
_LIBRARY.impl("drawn_number", _shape, "Meta")
_LIBRARY.impl("drawn_numbers", _draw_several, "CPU")
_LIBRARY.impl("drawn_numbers", _shape_of_several, "Meta")


class PythonGenerator:
    """A generator by its number, with the methods of a torch.Generator."""

    device = PYTHON

    def __init__(self, number: int) -> None:
        self._number = number

    def get_state(self) -> Any:
        return GENERATORS[self._number].getstate()

    def set_state(self, state: Any) -> None:
        GENERATORS[self._number].setstate(state)


def python_generators(graph: fx.Graph) -> list[PythonGenerator]:
    """The generators of Python that a graph draws from."""
    places = {DRAWN: 3, DRAWN_NUMBERS: 5}
    numbers = {node.args[places[node.target]]: None for node in graph.nodes if node.target in places}
    return [PythonGenerator(number) for number in numbers if isinstance(number, int) and number >= 0]
