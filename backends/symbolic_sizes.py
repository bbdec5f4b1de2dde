"""Backends that take graphs whose sizes are not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

B = TypeVar("B", bound=Callable[..., Any])


class NeedsKnownSizes(Exception):
    """A graph can't be compiled while sizes of its inputs are symbolic; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Place(NamedTuple):
    """Where a symbol is read: a size, or a stride, of an input."""

    position: int
    dim: int
    is_stride: bool = False

    def read(self, inputs: Sequence[torch.Tensor]) -> int:
        tensor = inputs[self.position]
        return tensor.stride(self.dim) if self.is_stride else tensor.size(self.dim)


def with_symbolic_sizes(backend: B) -> B:
    """Marks a backend that what it makes of a graph may be called with other sizes than those of its example inputs.

    In the fakes of such a graph (`meta["val"]`) symbolic sizes and strides are `torch.SymInt`s; they reach operations
    through nodes that call `torch.ops.aten.sym_size.int`, `sym_stride.int` and Python's operators on ints. To other
    backends only graphs of known sizes are given.
    """
    backend.symbolic_sizes = True  # type: ignore[attr-defined]
    return backend


def takes_symbolic_sizes(backend: Callable[..., Any]) -> bool:
    """Whether a backend compiles graphs whose fakes have symbolic sizes."""
    return bool(getattr(backend, "symbolic_sizes", False))


def is_symbolic(gm: torch.fx.GraphModule) -> bool:
    """Whether the size of an input of the graph is a symbol of ours."""
    return any(has_symbols(node.meta.get("val")) for node in gm.graph.find_nodes(op="placeholder"))


def has_symbols(fake: Any) -> bool:
    """Whether a size or stride of a fake is a symbol."""
    return isinstance(fake, torch.Tensor) and fake._has_symbolic_sizes_strides
