"""The backend that runs a graph as it is, operation by operation."""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.backends.graph_code import compact
from framejit.backends.symbolic_sizes import with_symbolic_sizes

if TYPE_CHECKING:
    import torch


@with_symbolic_sizes
def eager(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """The graph's own Python function; `torch.nn.Module.__call__` would cost more than a small graph."""
    return compact(gm)
