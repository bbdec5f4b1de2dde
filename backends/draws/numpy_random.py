"""Random numbers of numpy's `np.random`, drawn by an operation of the graph, in its place among the others.

What a function gives is a tensor of that shape; a number is one without dimensions. Where a graph raises, or is tried,
the state of `np.random` is put back as that of torch's generators is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import fx

OWNER: Final[np.random.RandomState] = np.random.mtrand._rand
"""The generator that the functions of the module are methods of."""
_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "drawn_by_numpy(str function, Scalar[] arguments, str[] names, int[]? size, Tensor like) -> Tensor",
    tags=(torch.Tag.nondeterministic_seeded,),
)
DRAWN_BY_NUMPY: Final[torch._ops.OpOverload] = torch.ops.framejit.drawn_by_numpy.default
"""(a method of RandomState, its numbers, the names of the last of them, what it is given as `size`, a tensor of the
result's kind): what it gives, in a tensor on the CPU. What `seed` gives says nothing."""


def draw(
    owner: np.random.RandomState, function: str, arguments: Sequence[Any], names: Sequence[str],
    size: Sequence[int] | None,
) -> Any:
    """What a method of a generator of numpy's gives."""
    count = len(arguments) - len(names)
    named = dict(zip(names, arguments[count:])) | ({} if size is None else {"size": tuple(size)})
    return getattr(owner, function)(*arguments[:count], **named)


def _draw(
    function: str, arguments: Sequence[Any], names: Sequence[str], size: Sequence[int] | None, like: torch.Tensor
) -> torch.Tensor:
    drawn = draw(OWNER, function, arguments, names, size)
    return torch.zeros_like(like) if function == "seed" else torch.from_numpy(np.asarray(drawn))


def _shape(
    function: str, arguments: Sequence[Any], names: Sequence[str], size: Sequence[int] | None, like: torch.Tensor
) -> torch.Tensor:
    return torch.empty_like(like)


_LIBRARY.impl("drawn_by_numpy", _draw, "CPU")
_LIBRARY.impl("drawn_by_numpy", _shape, "Meta")


class NumpyGenerator:
    """The generator of `np.random`, with the methods of a torch.Generator."""

    device = "numpy"

    def get_state(self) -> Any:
        return OWNER.get_state(legacy=False)

    def set_state(self, state: Any) -> None:
        OWNER.set_state(state)


def draws_by_numpy(graph: fx.Graph) -> bool:
    """Whether a graph draws numbers of `np.random`."""
    return any(node.target is DRAWN_BY_NUMPY for node in graph.nodes)
