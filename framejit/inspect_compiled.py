"""`framejit.inspect`: what the fusing backend made of a function's graphs."""
from __future__ import annotations

import functools
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from framejit import _native
from framejit._native import Dispatcher, EntryCache
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, KernelSource, recall_all
from framejit.dispatchers import live_dispatchers
from framejit.errors import InvalidTarget
from framejit.late_dataclass import dataclass
from framejit.optimized_module import OptimizedModule, dispatcher_of


@dataclass(frozen=True)
class InspectedGraph:
    """One compiled graph, as it is now. Prints as one line."""

    name: str
    function: str
    """Whose frame it is from; for what follows a graph break with the line it goes on at."""
    state: str
    """`measuring`, `compiled`, or `eager` where ATen measured quicker or nothing could be compiled."""
    kernels: tuple[KernelSource, ...]
    externs: tuple[str, ...]
    """The operations that ATen carries out, in order."""
    reason: str
    """Why all of it runs as ATen; empty if it does not."""
    frozen_bytes: int
    """Memory of what was computed from frozen weights and is kept (`optimize(freeze=True)`)."""
    folded_norms: int
    """Batch norms that went into frozen weights."""
    compiled_us: float | None
    """The best time measured for a call of the compiled plan, in microseconds; None before anything was measured."""
    eager_us: float | None
    """The best time measured for a call of the graph as ATen operations, in microseconds, or what its launches take at
    least where that is more than the plan takes; None before anything was measured."""
    recorded: str
    """The operations of the graph as they were recorded, before all passes; empty if there was something that can't be
    recorded."""
    before_fusion: str
    after_fusion: str
    artifacts: str
    """The folder where it was written down, if it was."""
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Inspection:
    """The result of `framejit.inspect`: the graphs of a function with their kernels. Prints as an outline; `str` of a
    kernel's `source` is the code itself."""

    function: str
    graphs: tuple[InspectedGraph, ...]

    @property
    def n_kernels(self) -> int:
        """The number of kernels of all graphs."""
        return sum(len(graph.kernels) for graph in self.graphs)

    @property
    def kernels(self) -> tuple[KernelSource, ...]:
        """The kernels of all graphs, in order."""
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels)

    @property
    def source(self) -> str:
        """The generated source of all kernels."""
        return "\n\n".join(kernel.source for kernel in self.kernels)

    def __str__(self) -> str:
        if not self.graphs:
            return f"{self.function}: the backend fuse has compiled no graph of it"
        lines = [f"{self.function}: graphs {len(self.graphs)}, kernels {self.n_kernels}"]
        for graph in self.graphs:
            lines += [f"  {graph.function}", f"    {graph}"]
            for kernel in graph.kernels:
                lines += [
                    f"      {kernel.name} ({kernel.language})",
                    *(f"        {origin}" for origin in kernel.origins),
                ]
        return "\n".join(lines)


def inspect(fn: Any, /) -> Inspection:
    """The graphs that the backend `fuse` compiled for an optimized function or module, those behind graph breaks too:
    kernels, sources and times.

    `fn` is what `optimize` returned, or the function it was given, or any function under `framejit run`. It must have
    been called, or there is nothing to see yet. Raises InvalidTarget if `fn` was never optimized.
    """
    owners = _owners_of(fn)
    if not owners:
        raise InvalidTarget(
            f"inspect takes what `framejit.optimize` returned, and {getattr(fn, '__qualname__', type(fn).__name__)} "
            "was not optimized"
        )
    found = {id(graph): _inspected(graph, place) for owner in owners for graph, place in _graphs(owner)}
    return Inspection(getattr(owners[0].options, "name", None) or owners[0].code.co_qualname, tuple(found.values()))


def _owners_of(fn: Any) -> list[EntryCache]:
    """What holds the compiled entries of a function."""
    if isinstance(fn, OptimizedModule):
        fn = dispatcher_of(fn)
    while isinstance(fn, (MethodType, staticmethod, classmethod, functools.partial)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    if isinstance(fn, Dispatcher):
        return [fn]
    if not isinstance(fn, FunctionType):
        return []
    options = getattr(fn, "options", None)  # of a function that verifies calls, and stands in front of a dispatcher
    function = getattr(fn, "_framejit_verified", fn)
    found: list[EntryCache] = [
        owner for owner in live_dispatchers() if owner.function is function and options in (None, owner.options)
    ]
    seen_by_hook = _native.code_cache(function.__code__)
    return found or ([seen_by_hook] if seen_by_hook is not None and seen_by_hook.entries else [])


def _graphs(root: EntryCache) -> Iterator[tuple[CompiledGraph, str]]:
    """The graphs of a function's entries and of all that these may go on to, each with the place its frame is from."""
    waiting, seen = [root], {id(root)}
    while waiting:
        owner = waiting.pop(0)
        for entry in owner.entries:
            for slot in entry.slots:
                target = slot.target
                if isinstance(target, Dispatcher):
                    if id(target) not in seen:
                        seen.add(id(target))
                        waiting.append(target)
                    continue
                for graph in recall_all(getattr(target, "__wrapped__", target)):
                    yield graph, _place(owner)


def _place(owner: EntryCache) -> str:
    resume = getattr(getattr(owner, "function", None), "_framejit_resume", None)
    if resume is None:
        options, code = owner.options, owner.code
        named = getattr(options, "file", None) is not None
        return (
            f"{options.name} ({options.file}:{options.line})"
            if named
            else f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
        )
    from framejit.bytecode.decode import decode  # no part of `import framejit`

    line = decode(resume.original).instructions[resume.index].line
    return f"{resume.original.co_qualname}, from {resume.original.co_filename}:{line} on"


def _inspected(graph: CompiledGraph, place: str) -> InspectedGraph:
    compiled, eager = graph.times
    return InspectedGraph(
        graph.name,
        place,
        graph.state,
        tuple(graph.kernels),
        tuple(graph.externs),
        graph.reason,
        graph.frozen_bytes,
        graph.folded_norms,
        compiled,
        eager,
        str(graph.recorded or ""),
        graph.before_fusion,
        graph.after_fusion,
        graph.artifacts,
        str(graph),
    )
