"""Graphs that need gradients: forward and backward recorded together, parted, and compiled as two.

Its parts, and the package of graph algorithms that they need, are imported with the first such graph: most processes
that only infer never have one, and importing them takes as long as the rest of the backend.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import fx

    from framejit.backends.fuse.account.compiled_graph import CompiledGraph
    from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable
    from framejit.backends.fuse.cache.plan_key import SymbolicSizes


def compile_differentiable(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], account: CompiledGraph,
    symbolic_sizes: SymbolicSizes | None = None,
) -> Differentiable:
    """See `halves.compile_differentiable`."""
    from framejit.backends.fuse.training import halves

    return halves.compile_differentiable(gm, examples, account, symbolic_sizes)
