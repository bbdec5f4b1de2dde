"""Why a graph is not compiled."""
from __future__ import annotations

from framejit.errors import FramejitError


class NotFusable(FramejitError):
    """The graph is to run as ATen, for the reason given; nothing is wrong with it."""


class KernelFailed(FramejitError):
    """A kernel could not be compiled; the message names it."""
