"""Random numbers of numpy's `np.random`, and of generators that the program made (`np.random.default_rng()`), drawn by
an operation of the graph, in its place among the others.

What a function gives is a tensor of that shape; a number is one without dimensions. Where a graph raises, or is tried,
the state of the generator is put back as that of torch's generators is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import fx

from framejit.backends.draws.made_generators import MADE
from framejit.backends.own_operations import NUMPY

OWNER: Final[np.random.RandomState] = np.random.mtrand._rand
"""The generator that the functions of the module are methods of."""
MAKES: Final[dict[str, Any]] = {"default_rng": np.random.default_rng, "RandomState": np.random.RandomState}
"""What makes generators, by the name that an operation is given, of the seed that its tensor says."""
Generator = np.random.RandomState | np.random.Generator
MOST_GENERATORS: Final = 256
_GENERATORS: Final[list[Generator]] = [OWNER]
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "drawn_by_numpy(int generator, str function, Scalar[] arguments, str[] names, int[]? size, Tensor like) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
DRAWN_BY_NUMPY: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_by_numpy.default
"""(the number of a generator, a method of it, its numbers, the names of the last of them, what it is given as `size`, a
tensor of the result's kind): what it gives, in a tensor on the CPU. What `seed` gives says
nothing, nor what those of `MAKES` do."""


def number_of(generator: Generator) -> int | None:
    """The number by which graphs know a generator of numpy's. These have no weak references, so that they are kept; of
    more than `MOST_GENERATORS` None is known."""
    found = next((number for number, known in enumerate(_GENERATORS) if known is generator), None)
    if found is None and len(_GENERATORS) < MOST_GENERATORS:
        found = len(_GENERATORS)
        _GENERATORS.append(generator)
    return found


def draw(
    owner: Generator, function: str, arguments: Sequence[Any], names: Sequence[str], size: Sequence[int] | None
) -> Any:
    """What a method of a generator of numpy's gives."""
    count = len(arguments) - len(names)
    named = dict(zip(names, arguments[count:])) | ({} if size is None else {"size": tuple(size)})
    return getattr(owner, function)(*arguments[:count], **named)


def _draw(
    generator: int, function: str, arguments: Sequence[Any], names: Sequence[str], size: Sequence[int] | None,
    like: torch.Tensor,
) -> torch.Tensor:
    if function in MAKES:
        MADE.put(generator, MAKES[function](like.item()))
        return torch.zeros_like(like)
    drawn = draw(MADE[generator] if generator < 0 else _GENERATORS[generator], function, arguments, names, size)
    return torch.zeros_like(like) if function == "seed" else torch.from_numpy(np.asarray(drawn))


def _shape(
    generator: int, function: str, arguments: Sequence[Any], names: Sequence[str], size: Sequence[int] | None,
    like: torch.Tensor,
) -> torch.Tensor:
    return torch.empty_like(like)


_LIBRARY.impl("drawn_by_numpy", _draw, "CPU")
_LIBRARY.impl("drawn_by_numpy", _shape, "Meta")


class NumpyGenerator:
    """A generator of numpy's by its number, with the methods of a torch.Generator."""

    device = NUMPY

    def __init__(self, number: int) -> None:
        self._generator = _GENERATORS[number]

    def get_state(self) -> Any:
        if isinstance(self._generator, np.random.RandomState):
            return self._generator.get_state(legacy=False)
        return self._generator.bit_generator.state

    def set_state(self, state: Any) -> None:
        if isinstance(self._generator, np.random.RandomState):
            self._generator.set_state(state)
        else:
            self._generator.bit_generator.state = state


def numpy_generators(graph: fx.Graph) -> list[NumpyGenerator]:
    """The generators of numpy's that a graph draws from."""
    numbers = {node.args[0]: None for node in graph.nodes if node.target is DRAWN_BY_NUMPY}
    return [NumpyGenerator(number) for number in numbers if isinstance(number, int) and number >= 0]
