"""What was made of one graph: kept with its graph module, so that `framejit.inspect` and `framejit.status` can tell."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    import torch

    from framejit import _native
    from framejit.backends.fuse.cache.kept_plan import KeptPlan
    from framejit.backends.fuse.graph.graph_text import GraphText

_KEY = "framejit.fuse"
SIZES: Final = "framejit.sizes"
"""In a graph module's `meta`: the sizes that it was made for, of a graph that was captured with symbolic ones."""

PART: Final = "framejit.part"
"""In a graph module's `meta`: its number among the parts of the graph that was captured."""


@dataclass(frozen=True)
class KernelSource:
    """A kernel that was generated."""

    name: str
    language: str
    """`triton` or `llvm`."""
    source: str
    origins: tuple[str, ...]
    """The user's source lines that it carries out."""


@dataclass(eq=False)
class CompiledGraph:
    """A graph that the fusing backend took on: how it looked from stage to stage, and what runs now."""

    name: str
    module: weakref.ref[torch.fx.GraphModule]
    graph_id: int | None = None
    """The graph's number among the captured graphs; None for one that framejit did not capture."""
    autotune: bool = False
    """Whether of several ways to write a kernel the one is taken that measures quickest."""
    kernels: list[KernelSource] = field(default_factory=list)
    externs: list[str] = field(default_factory=list)
    """The operations that ATen carries out, in order."""
    recorded: GraphText | None = None
    """The graph as it was recorded, before all passes."""
    passes: list[tuple[str, str]] = field(default_factory=list)
    """The names of passes, and the graph that each of them left if it changed it; only where each stage is written
    down, or a pass failed."""
    before_fusion: str = ""
    after_fusion: str = ""
    reason: str = ""
    left_to_aten: bool = False
    """Whether that is so because nothing can be fused, not because something failed."""
    """Why all of it runs as ATen; empty if it does not."""
    frozen_bytes: int = 0
    """Memory of what was computed from frozen weights and is kept."""
    folded_norms: int = 0
    """Batch norms that went into frozen weights."""
    artifacts: str = ""
    """The folder where it was written down, if it was."""
    run: Callable[..., Any] | None = None
    kept: KeptPlan | None = None
    """How another process finds the plan without recording the graph, if it can."""
    machine_code: list[Any] = field(default_factory=list, repr=False)
    """What the kernels' machine code lives as long as; the plan knows only addresses."""

    def of_backward(self, number: int) -> CompiledGraph:
        """The account of the backward of a segment of the graph, which is the `number`th to be compiled."""
        name = f"{self.name}_backward{number + 1 if number else ''}"
        return CompiledGraph(name, self.module, self.graph_id, self.autotune)

    def divided(self) -> CompiledGraph:
        """An account of the graph's forward for when each of its segments is to have a backward of its own."""
        return CompiledGraph(f"{self.name}_divided", self.module, self.graph_id, self.autotune)

    @property
    def state(self) -> str:
        """`measuring`, `compiled`, or `eager` where eager measured quicker or nothing could be compiled."""
        return str(getattr(self.run, "state", "eager"))

    @property
    def times(self) -> tuple[float | None, float | None]:
        """The best microseconds measured for a call of the compiled plan and of eager; None where nothing was
        measured."""
        compiled, eager = getattr(self.run, "compiled_ns", None), getattr(self.run, "eager_ns", None)
        return compiled and compiled / 1e3, eager and eager / 1e3

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name} runs as ATen: {self.reason}"
        compiled, eager = self.times
        externs = (
            f", {_count(len(self.externs), 'operation')} by ATen ({', '.join(dict.fromkeys(self.externs))})"
            if self.externs
            else ""
        )
        times = f"; {compiled:.1f} us a call, {eager:.1f} us as ATen" if compiled and eager else ""
        return f"{self.name} ({self.state}): {_count(len(self.kernels), 'kernel')}{externs}{self._frozen()}{times}"

    def _frozen(self) -> str:
        if not self.frozen_bytes:
            return ""
        norms = f", {_count(self.folded_norms, 'batch norm')} folded" if self.folded_norms else ""
        return f", {self.frozen_bytes / 2**20:.1f} MiB computed from frozen weights{norms}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def name_of(graph_id: int, meta: dict[str, Any]) -> str:
    """What a graph of this number is called, by what the `meta` of its module says of sizes and parts."""
    sizes, part = meta.get(SIZES), meta.get(PART)
    of_sizes = f"_for_{'_'.join(map(str, sizes))}" if sizes else ""
    return f"graph_{graph_id}{of_sizes}{'' if part is None else f'_part_{part}'}"


def remember(gm: torch.fx.GraphModule, graph: CompiledGraph) -> None:
    """Keep the account of a graph as long as the graph."""
    gm.meta[_KEY] = graph


def recall_all(compiled: Callable[..., Any]) -> list[CompiledGraph]:
    """The accounts of all that a compiled callable of this backend may run: one for each combination of sizes, if these
    are symbolic."""
    by_size = getattr(getattr(compiled, "miss", None), "__self__", compiled)
    several = by_size.graphs() if hasattr(by_size, "graphs") else ()
    if several:
        return list(several)
    graph = recall(by_size)
    return [] if graph is None else [graph]


def recall(compiled: Callable[..., Any] | _native.Selector) -> CompiledGraph | None:
    """The account of the graph that a compiled callable of this backend runs; None for anything else."""
    eager = getattr(compiled, "eager", compiled)
    return getattr(getattr(eager, "__self__", None), "meta", {}).get(_KEY)
