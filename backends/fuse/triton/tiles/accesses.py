"""What a kernel reads and writes, and how much of it."""

from __future__ import annotations

import math

from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Kernel
from framejit.backends.fuse.sizes.symbolic_size import hint
from framejit.backends.fuse.triton.tiles.multiples import is_dense
from framejit.late_dataclass import dataclass


@dataclass(frozen=True)
class Access:
    """A load or a store, with the bytes that it moves in all, for the sizes now."""

    index: Index
    itemsize: int
    bytes: int

    @property
    def fast(self) -> Var | None:
        """The loop along which it goes through memory one element at a time."""
        return next((var for var in self.index.terms if isinstance(var, Var) and is_dense(self.index, var)), None)


def accesses(kernel: Kernel) -> list[Access]:
    """Every place that the kernel reads or writes."""
    places = [(store.buffer, store.index) for store in kernel.stores]
    places += [(name, index) for name, indices in kernel.reads.items() for index in indices]
    found = []
    for name, index in places:
        itemsize = kernel.buffers[name].dtype.itemsize
        found.append(Access(index, itemsize, itemsize * math.prod(hint(var.size) for var in index.vars())))
    return found
