"""What a pass may know besides the graph."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import fx

from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class Context:
    """The captured graph, and the inputs that it is compiled for. There is no captured graph for a half of what was
    captured."""

    gm: fx.GraphModule | None
    examples: Sequence[torch.Tensor]
