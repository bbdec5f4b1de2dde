"""Memory that the C library keeps between calls of a plan on a CPU.

glibc gives back to the system what is free at the end of its heap once that is more than twice the largest block that
the program has freed (mallopt(3), M_MMAP_THRESHOLD). A plan takes many blocks, none of them large, and would have their
pages mapped anew in each call: 2,900 faults and a third of the time of a MobileNet. So one block as large as all of
them, but no larger than glibc learns from, is taken and freed once; nobody writes into it, so that it has no pages.
"""

from __future__ import annotations

import math
from typing import Final

import torch

from framejit.backends.fuse.plan.plan_parts import PlanParts

MOST: Final = (32 << 20) - (1 << 16)
"""The largest block that glibc learns from, with room for what the allocator adds."""


def keep_heap(parts: PlanParts) -> None:
    """Have the C library keep as much memory as a plan takes for its values, up to 64 MiB."""
    sizes = (
        math.prod(step[2]) * step[4].itemsize for step in parts.steps if step[0] == "empty" and step[5].type == "cpu"
    )
    torch.empty(min(sum(sizes), MOST), dtype=torch.uint8)
