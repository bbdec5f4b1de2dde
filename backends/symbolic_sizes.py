"""Backends that take graphs whose sizes are not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

B = TypeVar("B", bound=Callable[..., Any])


def with_symbolic_sizes(backend: B) -> B:
    """Marks a backend that what it makes of a graph may be called with other sizes than those of its example inputs.

    In the fakes of such a graph (`meta["val"]`) open sizes are `torch.SymInt`s; they reach operations through nodes that call
    `torch.ops.aten.sym_size.int` and Python's operators on ints. To other backends only graphs of known sizes are given.
    """
    backend.symbolic_sizes = True  # type: ignore[attr-defined]
    return backend


def takes_symbolic_sizes(backend: Callable[..., Any]) -> bool:
    return bool(getattr(backend, "symbolic_sizes", False))
