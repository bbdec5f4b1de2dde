"""Kernels that share a launch, each by programs of its own: products of one input with matrices of different sizes, and
small kernels that read the same.

A product with few columns has too few programs to keep a GPU's memory busy; beside a larger one it costs what reading
its matrix costs. A small kernel costs its launch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Buffer, ExternNode, Kernel, TileKernel
from framejit.backends.fuse.loop_ir.products import is_product
from framejit.backends.fuse.schedule.dependencies import constraints
from framejit.backends.fuse.targets.lookup import target_of

MOST_MEMBERS: Final = 4
MOST_BUFFERS: Final = 48
"""Pointers of one launch."""


def side_by_side(steps: Sequence[Kernel | ExternNode], buffers: Mapping[str, Buffer]) -> list[Kernel | ExternNode]:
    """The steps, where kernels that do not wait for one another have one launch."""
    if sum(map(_may_share, steps)) < 2:
        return [*steps]
    before = constraints([*steps], buffers)
    groups: dict[int, list[Kernel]] = {}
    result: list[int] = []
    for position, step in enumerate(steps):
        if isinstance(step, Kernel) and _may_share(step):
            first = max(before[position], default=-1)
            host = next((at for at, members in groups.items() if at > first and _fits(members, step)), None)
            if host is not None:
                groups[host].append(step)
                continue
            groups[position] = [step]
        result.append(position)
    return [_together(groups[at]) if len(groups.get(at, ())) > 1 else steps[at] for at in result]


def _may_share(step: Kernel | ExternNode) -> bool:
    if not isinstance(step, Kernel) or isinstance(step, AttentionKernel | TileKernel):
        return False
    if not target_of(step.device).shares_launches:
        return False
    return (is_product(step) and not step.is_empty) or _is_small(step)


def _is_small(kernel: Kernel) -> bool:
    """Whether it costs its launch, and computes each element by itself."""
    size = kernel.parallel_size
    return not kernel.reduction and type(size) is int and 0 < size <= target_of(kernel.device).few_elements


def _fits(members: Sequence[Kernel], kernel: Kernel) -> bool:
    """Whether a kernel reads what others of a launch read, in sums as long; or nothing."""
    first = members[0]
    names = {name for member in (*members, kernel) for name in member.buffers}
    return (
        len(members) < MOST_MEMBERS
        and len(names) <= MOST_BUFFERS
        and first.device == kernel.device
        and _is_small(first) == _is_small(kernel)
        and _length(first) == _length(kernel)
        and (not first.reads or not kernel.reads or bool(set(first.reads) & set(kernel.reads)))
    )


def _length(kernel: Kernel) -> int:
    return math.prod(var.size for var in kernel.reduction)


def _together(members: Sequence[Kernel]) -> Kernel:
    first = members[0]
    return Kernel(
        first.parallel, first.reduction, [store for member in members for store in member.stores], first.device,
        tuple(dict.fromkeys(origin for member in members for origin in member.origins)), name=first.name,
        buffers={name: buffer for member in members for name, buffer in member.buffers.items()},
        members=tuple(members),
    )
