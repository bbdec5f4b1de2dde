"""Steps under other names: which names one step has for those of another that does the same, and a step once more, with
other buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.loop_ir.nodes import AttentionKernel, Buffer, ExternNode, Kernel, Layout, TileKernel
from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel, renamed
from framejit.backends.fuse.schedule.loop_order import substitute

Step = Kernel | ExternNode
Names = Iterator[tuple[str, str]]


class Unlike(Exception):
    """Two steps do not do the same."""


def pairs(step: Step, other: Step) -> Names:
    """For each name of a buffer in a step the one that stands there in the other. Raises Unlike where these are not
    enough to make one of the other."""
    if isinstance(step, AttentionKernel):  # which says in its own way what it reads and writes
        raise Unlike
    if isinstance(step, TileKernel) and isinstance(other, TileKernel):
        yield from _of_tiles(step, other)
    elif isinstance(step, TileKernel) or isinstance(other, TileKernel):
        raise Unlike
    elif isinstance(step, Kernel) and isinstance(other, Kernel):
        yield from _of_kernels(step, other)
    elif isinstance(step, ExternNode) and isinstance(other, ExternNode):
        yield from _of_calls(step, other)
    else:
        raise Unlike


def _of_kernels(kernel: Kernel, other: Kernel) -> Names:
    if (
        (kernel.device, kernel.origins, len(kernel.members)) != (other.device, other.origins, len(other.members))
        or len(kernel.stores) != len(other.stores)
        or len(kernel.buffers) != len(other.buffers)
        or _sizes(kernel) != _sizes(other)
    ):
        raise Unlike
    names = dict(zip(kernel.buffers, other.buffers))
    yield from names.items()
    if kernel.members:
        for member, like in zip(kernel.members, other.members):
            yield from _of_kernels(member, like)
        return
    loops = {
        var: Index.of(like)
        for var, like in zip((*kernel.parallel, *kernel.reduction), (*other.parallel, *other.reduction))
    }
    stores = [renamed(store, names) for store in substitute(kernel.stores, loops)]
    if stores != other.stores or _of(names, kernel.steady) != other.steady:  # equal expressions are one object
        raise Unlike


def _of_tiles(kernel: TileKernel, other: TileKernel) -> Names:
    ones, others = (each.tile.operands for each in (kernel, other))
    if (
        (kernel.device, kernel.origins, kernel.tile.told) != (other.device, other.origins, other.tile.told)
        or len(kernel.buffers) != len(other.buffers)
        or (kernel.epilogue is None) != (other.epilogue is None)
    ):
        raise Unlike
    names = dict(zip(kernel.buffers, other.buffers))
    if any(one is not None and two is not None and names[one.name] != two.name for one, two in zip(ones, others)):
        raise Unlike
    yield from names.items()
    names[kernel.tile.result.name] = other.tile.result.name
    if kernel.epilogue is not None and other.epilogue is not None:
        places = zip(kernel.epilogue.index.vars(), other.epilogue.index.vars(), strict=True)
        (store,) = substitute([kernel.epilogue], {var: Index.of(like) for var, like in places})
        if renamed(store, names) != other.epilogue:
            raise Unlike


def _sizes(kernel: Kernel) -> tuple[list[Any], list[Any]]:
    return [var.size for var in kernel.parallel], [var.size for var in kernel.reduction]


def _of_calls(call: ExternNode, other: ExternNode) -> Names:
    if (call.function, call.ordered, call.origins, call.speaks) != (
        other.function, other.ordered, other.origins, other.speaks,
    ):
        raise Unlike
    yield from _of_arguments((call.args, call.kwargs, call.results), (other.args, other.kwargs, other.results))
    for names, others in ((call.reads, other.reads), (call.writes, other.writes)):
        if len(names) != len(others):
            raise Unlike
        yield from zip(names, others)


def _of_arguments(value: Any, other: Any) -> Names:
    if type(value) is not type(other):
        raise Unlike
    if isinstance(value, Layout):
        if (value.sizes, value.strides, value.offset) != (other.sizes, other.strides, other.offset):
            raise Unlike
        yield value.buffer.name, other.buffer.name
    elif isinstance(value, Buffer):
        yield value.name, other.name
    elif type(value) in (list, tuple):
        if len(value) != len(other):
            raise Unlike
        for part, like in zip(value, other):
            yield from _of_arguments(part, like)
    elif type(value) is dict:
        if [*value] != [*other]:
            raise Unlike
        yield from _of_arguments([*value.values()], [*other.values()])
    elif value is not other and (isinstance(value, torch.Tensor) or repr(value) != repr(other) or value != other):
        raise Unlike


def _of(names: dict[str, str], steady: frozenset[str] | None) -> frozenset[str] | None:
    return None if steady is None else frozenset(names[name] for name in steady)


# ---- a step once more ----


def again(step: Step, buffer: Callable[[str], Buffer], number: int) -> Step:
    """A step with other buffers; `number` is how many nodes it stands behind the first in the schedule."""
    if isinstance(step, ExternNode):
        return replace(
            step, args=_replaced(step.args, buffer),
            kwargs={key: _replaced(value, buffer) for key, value in step.kwargs.items()},
            results=_replaced(step.results, buffer), reads=[buffer(name).name for name in step.reads],
            writes=[buffer(name).name for name in step.writes],
        )
    return RenamedKernel(step, {name: buffer(name) for name in step.buffers}, _name_behind(step.name, number))


def layout_again(layout: Layout, buffer: Callable[[str], Buffer]) -> Layout:
    """A layout of another buffer."""
    return replace(layout, buffer=buffer(layout.buffer.name))


def _replaced(value: Any, buffer: Callable[[str], Buffer]) -> Any:
    if isinstance(value, Layout):
        return layout_again(value, buffer)
    if isinstance(value, Buffer):
        return buffer(value.name)
    return type(value)(_replaced(part, buffer) for part in value) if type(value) in (list, tuple) else value


def number_of(kernel: Kernel) -> int:
    """The number at the end of a kernel's name."""
    return int(kernel.name.rpartition("_")[2])


def _name_behind(name: str, number: int) -> str:
    """The name of a kernel that does the same, so many nodes later."""
    what, _, own = name.rpartition("_")
    return f"{what}_{int(own) + number}"
