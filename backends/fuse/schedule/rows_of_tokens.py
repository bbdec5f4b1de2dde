"""Which rows of a cache a graph writes, before attention of one query: where it is one, whose number lies in memory,
the others may be loaded before the kernel that was launched before has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from framejit.backends.fuse.loop_ir.expr import Expr
from framejit.backends.fuse.loop_ir.index import Index, Indirect
from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Buffer, ExternNode, Kernel, Layout, Store
from framejit.backends.fuse.schedule.into_attention import head_step

Steps = Sequence[Kernel | ExternNode]


def with_rows_of_tokens(steps: Steps, buffers: Mapping[str, Buffer]) -> list[Kernel | ExternNode]:
    """The steps, where attention that may overlap knows what it may load early (`AttentionKernel.rows`)."""
    made: list[Kernel | ExternNode] = [*steps]
    for position, step in enumerate(steps):
        if isinstance(step, AttentionKernel) and step.steady is not None:
            rows = {}
            for layout in (step.attention.key, step.attention.value):
                row = _row(layout, steps[: position + 1], steps, buffers)
                if row is not None:
                    rows[layout.buffer.name] = row
            numbers = {row.attr[0]: buffers[row.attr[0]] for row in rows.values()}
            made[position] = replace(step, rows=rows, buffers={**step.buffers, **numbers})
    return made


def _row(layout: Layout, before: Steps, steps: Steps, buffers: Mapping[str, Buffer]) -> Expr | None:
    """The number, as it lies in memory, of the one row that anything in the graph writes to a cache that it was given;
    None if there is no such."""
    memory = buffers[layout.buffer.memory]
    if memory.input is None and memory.constant is None:
        return None
    rows: set[Expr | None] = set()
    for step in steps:
        if any(buffers[name].memory == memory.name for name in step.writes):
            rows |= {_row_of(each, layout) for each in _stores(step) if buffers[each.buffer].memory == memory.name}
            if isinstance(step, ExternNode):
                return None
    row = rows.pop() if len(rows) == 1 else None
    if row is None:
        return None
    holder = buffers[row.attr[0]].memory
    written = [step for step in steps for name in step.writes if buffers[name].memory == holder]
    return row if all(step in before for step in written) and len(written) <= 1 else None


def _stores(step: Kernel | ExternNode) -> list[Store]:
    if isinstance(step, ExternNode):
        return []
    return [*step.stores, *(store for first in getattr(step, "first", ()) for store in first.stores)]


def _row_of(store: Store, layout: Layout) -> Expr | None:
    """The number of the row of a cache, whichever head it is of, that a store writes to: a number in memory, the same
    for all turns."""
    to_row, to_head = layout.strides[2], head_step(layout)
    computed = [atom for atom in store.index.terms if isinstance(atom, Indirect)]
    if len(computed) != 1 or len(store.index.indirects) != 1 or store.index.terms[computed[0]] != to_row:
        return None
    value = computed[0].value
    if value.op != "load" or value.attr[1] != Index({}, value.attr[1].const):
        return None
    within = Index(
        {atom: step for atom, step in store.index.terms.items() if atom is not computed[0] and step % to_head},
        store.index.const - layout.offset,
    )
    low, high = within.bounds
    return value if 0 <= low and high < to_row else None
