"""What `bernoulli_` writes, as a tensor of its own that lies in memory as the one that is written: as dropout's mask
does for what was transposed. `aten::bernoulli.p` lays its result out in order, and draws in that order, too."""

from __future__ import annotations

from typing import Final

import torch

from framejit.backends.own_operations import NAMESPACE

_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")
_LIBRARY.define("bernoulli_like(Tensor like, float p) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))

BERNOULLI_LIKE: Final[torch._ops.OpOverload] = torch.ops.framejit.bernoulli_like.default
"""(like, p): ones with probability p, else zeros, with the sizes, strides, dtype and device of `like`."""


def _drawn(like: torch.Tensor, p: float) -> torch.Tensor:
    return torch.empty_like(like, memory_format=torch.preserve_format).bernoulli_(p)


_LIBRARY.impl("bernoulli_like", _drawn, "CompositeExplicitAutograd")
