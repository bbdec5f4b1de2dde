"""framejit's own backend: from an FX graph to fused kernels and a plan that runs them.

Its parts are imported with the first graph it is given, so that `import framejit` stays quick.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from framejit.backends.frozen_weights import with_frozen_weights
from framejit.backends.symbolic_sizes import with_symbolic_sizes

if TYPE_CHECKING:
    import torch


@with_frozen_weights
@with_symbolic_sizes
def fuse(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """The backend: see `backend.fuse_graph`."""
    from framejit.backends.fuse.targets.lookup import target_of  # the first graph imports it, and the rest below

    for device in dict.fromkeys(example.device for example in example_inputs):
        target_of(device).expect()  # while the rest is imported and the graph lowered
    from framejit.backends.fuse.backend import fuse_graph

    return fuse_graph(gm, example_inputs)


def fuse_kept_form(compiled: Callable[..., Any]) -> str:
    """See `kept.kept_form`."""
    from framejit.backends.fuse.kept import kept_form

    return kept_form(compiled)


def fuse_from_kept_form(
    form: str, module: Any, graph_id: int, give_up: Callable[[], None]
) -> Callable[..., Any]:
    """See `kept.from_kept_form`."""
    from framejit.backends.fuse.kept import from_kept_form

    return from_kept_form(form, module, graph_id, give_up)


def fuse_part_modules(compiled: Callable[..., Any]) -> list[Any]:
    """See `kept.part_modules`."""
    from framejit.backends.fuse.kept import part_modules

    return part_modules(compiled)
