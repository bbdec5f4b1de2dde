"""How many bytes a kernel moves between memory and processor at least: what its bandwidth is counted from."""
from __future__ import annotations

import math

from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Kernel, TileKernel
from framejit.backends.fuse.sizes.symbolic_size import hint


def bytes_moved(kernel: Kernel) -> int | None:
    """Each element that is read or written counted once, for the sizes now; None where a kernel computes which ones
    these are."""
    if isinstance(kernel, AttentionKernel):
        return _of_attention(kernel)
    if isinstance(kernel, TileKernel):
        return sum(buffer.dtype.itemsize * hint(buffer.extent) for buffer in kernel.buffers.values())
    total = 0
    written = {store.buffer: [s.index for s in kernel.stores if s.buffer == store.buffer] for store in kernel.stores}
    for accesses in (kernel.reads, written):
        for name, indices in accesses.items():
            if any(True for index in indices for _ in index.indirects):
                return None
            buffer = kernel.buffers[name]
            total += buffer.dtype.itemsize * min(hint(buffer.extent), hint(sum(map(_elements, indices))))
    return total


def _elements(index: Index) -> int:
    """How many elements an access reaches, if no two turns of its loops reach the same."""
    return math.prod(var.size for var in index.vars())


def _of_attention(kernel: AttentionKernel) -> int:
    """Of the cache what is looked at; of what its programs do before, nothing: it is small."""
    attention = kernel.attention
    read = sum(
        layout.buffer.dtype.itemsize * math.prod(size for size, step in zip(layout.sizes, layout.strides) if step)
        for layout in attention.layouts
    )
    return read + sum(buffer.dtype.itemsize * buffer.extent for buffer in attention.filled)
