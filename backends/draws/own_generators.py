"""Random numbers of generators that the program made (`torch.Generator()`), drawn by an operation of the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import fx

from framejit.backends.draws.made_generators import MADE
from framejit.backends.draws.numbered import Numbered

GENERATORS: Final[Numbered[torch.Generator]] = Numbered()
IN_PLACE: Final = frozenset("normal_ uniform_ bernoulli_ random_ exponential_ cauchy_ geometric_ log_normal_".split())
"""Methods of tensors that fill them with random numbers."""
MAKE: Final = "Generator"
"""What makes a generator, in their place."""
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "drawn_tensor(Tensor like, Tensor[] given, str function, Scalar[] arguments, int generator) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
DRAWN_TENSOR: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_tensor.default
"""(a tensor of the result's kind, laid out row by row; tensors that the function is given; its name; the numbers that
it is given; the number of the generator): what the function gives, or fills such a tensor with; what `manual_seed`
and `MAKE` give says nothing."""


def _draw(
    like: torch.Tensor, given: Sequence[torch.Tensor], function: str, arguments: Sequence[int | float], number: int
) -> torch.Tensor:
    if function == MAKE:
        MADE.put(number, torch.Generator())
        return torch.zeros_like(like)
    generator = GENERATORS[number]
    if function == "manual_seed":
        generator.manual_seed(int(given[0].item()))
        return torch.zeros_like(like)
    if function in IN_PLACE:
        made: torch.Tensor = getattr(torch.empty_like(like), function)(*arguments, generator=generator)
        return made
    if function == "randperm":
        return torch.randperm(int(arguments[0]), generator=generator, dtype=like.dtype)
    drawn: torch.Tensor = getattr(torch, function)(*given, *arguments, generator=generator)
    return drawn


def _shape(
    like: torch.Tensor, given: Sequence[torch.Tensor], function: str, arguments: Sequence[int | float], number: int
) -> torch.Tensor:
    return torch.empty_like(like)


_LIBRARY.impl("drawn_tensor", _draw, "CPU")
_LIBRARY.impl("drawn_tensor", _shape, "Meta")


class ProgramsGenerator:
    """A generator by its number, with the methods that the state is kept by."""

    device = "program"

    def __init__(self, number: int) -> None:
        self._number = number

    def get_state(self) -> torch.Tensor:
        return GENERATORS[self._number].get_state()

    def set_state(self, state: torch.Tensor) -> None:
        GENERATORS[self._number].set_state(state)


def generators_of(graph: fx.Graph) -> list[ProgramsGenerator]:
    """The generators of the program that a graph draws from."""
    numbers = {node.args[4]: None for node in graph.nodes if node.target is DRAWN_TENSOR}
    return [ProgramsGenerator(number) for number in numbers if isinstance(number, int) and number >= 0]
