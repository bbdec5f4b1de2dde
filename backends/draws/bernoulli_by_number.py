"""Random numbers by a probability that stands in a tensor without dimensions, as an operation of the graph.

`bernoulli_(tensor)` of torch draws other numbers than `bernoulli_(number)` from the same seed. So this reads the number
and calls that.
"""

from __future__ import annotations

from typing import Final

import torch

_LIBRARY: Final = torch.library.Library("framejit", "FRAGMENT")
_LIBRARY.define(
    "bernoulli_by_number(Tensor like, Tensor probability) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,)
)
BERNOULLI_BY_NUMBER: Final[torch._ops.OpOverload] = torch.ops.framejit.bernoulli_by_number.default
"""(a contiguous tensor, a probability in float64): ones with that probability, else zeros, as large as the tensor."""


def _drawn(like: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like).bernoulli_(probability.item())


def _shape(like: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(like)


_LIBRARY.impl("bernoulli_by_number", _drawn, "CPU")
_LIBRARY.impl("bernoulli_by_number", _shape, "Meta")
