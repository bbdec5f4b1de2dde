"""framejit's own backend: from an FX graph to fused kernels and a plan that runs them.

Its parts are imported with the first graph it is given, so that `import framejit` stays quick.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def fuse(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """The backend: see `backend.fuse_graph`."""
    from framejit.backends.fuse.backend import fuse_graph

    return fuse_graph(gm, example_inputs)
