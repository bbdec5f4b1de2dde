"""What a program says to the compiler: marks on its tensors, which captures find, and calls that mean something where
they are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.errors import InvalidOption

if TYPE_CHECKING:
    from framejit.symbols.expression import Bounds

MARK: Final = "_framejit_dynamic_dims"
"""The attribute of a tensor that `mark_dynamic` leaves."""


def mark_dynamic(
    tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Have the size of a dimension (or several) of an input left open: one compiled entry then serves all sizes.

    `min` and `max` are the least and the greatest size that calls bring, both included; without them anything from 2
    on, since sizes 0 and 1 mean other things to torch's operators. A call outside of them is compiled for its own size.
    The mark lies on this tensor, not on what is computed from it. Raises InvalidOption for what is no tensor, a
    dimension that it does not have, or bounds that leave no size.
    """
    from framejit.symbols.conditions import LEAST  # for those who leave sizes open
    from framejit.symbols.expression import INFINITE

    if not isinstance(tensor, torch.Tensor):
        raise InvalidOption(f"mark_dynamic takes a tensor, not {type(tensor).__name__}")
    low, high = LEAST if min is None else min, INFINITE if max is None else max
    if type(min) not in (int, type(None)) or type(max) not in (int, type(None)) or low < LEAST or high < low:
        raise InvalidOption(
            f"mark_dynamic: sizes from {min} to {max} are none; min is at least {LEAST}, and max at least min"
        )
    marks: dict[int, Bounds] = dict(getattr(tensor, MARK, {}))
    for one in dim if isinstance(dim, (tuple, list)) else (dim,):
        marks[_checked_dim(tensor, one)] = (low, high)
    setattr(tensor, MARK, marks)


def _checked_dim(tensor: torch.Tensor, dim: Any) -> int:
    """The dimension counted from the front. Raises InvalidOption where there is none such."""
    if type(dim) is not int or not -tensor.dim() <= dim < tensor.dim():
        raise InvalidOption(f"mark_dynamic: a tensor of {tensor.dim()} dimensions has no dimension {dim!r}")
    return dim % tensor.dim()


def graph_break() -> None:
    """Ends the graph here when the caller is compiled: what comes next is a graph of its own. Does nothing else. Under
    `fullgraph=True` the call of the optimized function raises GraphBreakError."""


def is_compiling() -> bool:
    """Whether the caller is being compiled: always False when it runs, and taken as True where it is captured."""
    return False
