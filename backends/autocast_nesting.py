"""How deep autocast blocks are nested on this thread. Torch counts it only to know when to forget the casts it
cached."""

from __future__ import annotations

from typing import Any, Final

import torch

NESTING: Final[tuple[Any, ...]] = (torch.autocast_increment_nesting, torch.autocast_decrement_nesting)
"""What changes the depth."""


def nesting() -> int:
    """The depth of autocast's nesting in this thread."""
    depth: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def nest(depth: int) -> None:
    """Go back, or forth, to a depth."""
    for _ in range(depth - nesting()):
        torch.autocast_increment_nesting()
    for _ in range(nesting() - depth):
        torch.autocast_decrement_nesting()
