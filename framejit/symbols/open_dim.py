"""A dimension of an input whose size is left open."""

from __future__ import annotations

from typing import NamedTuple

from framejit.symbols.expression import Bounds


class OpenDim(NamedTuple):
    """What is known of it."""

    bounds: Bounds
    """The sizes that are expected, both ends included."""
    grows: bool = False
    """Whether captured code itself changes it, as a cache that grows, so that any number may come."""
    again: bool = False
    """Whether an entry leaves it open already, which did not fit."""
