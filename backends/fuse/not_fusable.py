"""Why a graph is not compiled."""
from __future__ import annotations

from framejit.errors import FramejitError


class NotFusable(FramejitError):
    """The graph is to run as ATen, for the reason given; nothing is wrong with it."""


class NeedsGradients(NotFusable):
    """Raised for a graph that is to run as ATen because autograd has to see its operations, whatever the sizes are."""


class KernelFailed(FramejitError):
    """A kernel could not be compiled; the message names it."""


class PassFailed(FramejitError):
    """A pass over the graph raised; the message names it."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"the pass {name} failed with {type(error).__name__}: {error}")
        self.name = name
