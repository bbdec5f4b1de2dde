"""What the tests of shadow mode share: deliberately wrong backends, and the outcomes of a block."""
from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from support import of_kind, recorded


def swaps(old: Any, new: Any) -> Any:
    """A backend that runs `new` where the program says `old`."""

    def wrong(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Any:
        for node in gm.graph.nodes:
            if node.target is old or node.target == old:
                node.target = new
        gm.recompile()
        return gm.forward

    return wrong


@contextlib.contextmanager
def outcomes() -> Iterator[list[Any]]:
    """The verify events of the block, filled in at its end."""
    found: list[Any] = []
    with recorded() as log:
        yield found
    found += of_kind(log, "verify")
