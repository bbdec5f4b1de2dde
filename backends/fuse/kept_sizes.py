"""A graph with symbolic sizes that another process has compiled: its plans are found in the disk cache, each for the
sizes that it is right for."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, name_of, remember
from framejit.backends.fuse.account.telling import tell_found
from framejit.backends.fuse.cache.kept_plan import KeptPlan
from framejit.backends.fuse.cache.plan_cache import find_variant
from framejit.backends.fuse.cache.plan_key import NotCacheable, SymbolicSizes
from framejit.backends.fuse.plan.symbolic_plan import SizedPlans, SymbolicPlan
from framejit.backends.fuse.selecting import choice_of, plainly, selector
from framejit.backends.fuse.sizes.by_size import BySize, Run, Variant
from framejit.backends.graph_identity import identify
from framejit.backends.symbolic_sizes import Place
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Symbol


class KeptSizes(BySize):
    """Takes the graph's inputs, and runs the plan that fits their sizes.

    The graph itself is not at hand: for sizes that come again and that no plan fits `give_up` has the function captured
    in this process.
    """

    def __init__(self, kept: KeptPlan, module: Any, graph_id: int, give_up: Callable[[], None]) -> None:
        if kept.key_now() is None:
            raise NotCacheable("its plan is not for this process")
        identify(module, graph_id)
        symbols = kept.symbols([0] * len(kept.sizes))
        super().__init__(module, {symbol: Place(*place[3:]) for symbol, place in zip(symbols, kept.sizes)})
        self._kept, self._give_up, self._graph_id = kept, give_up, graph_id

    def _miss(self, sizes: tuple[int, ...], inputs: tuple[Any, ...]) -> tuple[Run, bool]:
        if not any(variant.fits(sizes) for variant in self._variants) and sizes not in self._seen:
            with self._lock:
                found = self._found(sizes)
                if found is not None:
                    self._variants.append(found)
        return super()._miss(sizes, inputs)

    def _compiled(self, sizes: tuple[int, ...], inputs: list[Any]) -> Run:
        self._give_up()
        return self.eager

    def _found(self, sizes: tuple[int, ...]) -> Variant | None:
        """The variant that another process has compiled for such sizes."""
        symbols = self._kept.symbols(sizes)
        key = self._kept.key_now(SymbolicSizes(symbols, Conditions()))
        if key is None:
            return None
        graph = CompiledGraph(name_of(self._graph_id, self.gm.meta), weakref.ref(self.gm), self._graph_id)
        found, _ = find_variant(key, graph)
        if found is None:
            return None
        record = found.record
        eager = record.by_aten(self.eager)
        remember(self.gm, graph)
        tell_found(graph, record)

        def select(run: Run) -> _native.Selector:
            graph.run = selector(run, self.eager, choice_of(record), graph, None)
            return graph.run

        def finished(plan: _native.Plan, _: Any) -> Run:
            return plainly(plan) if record.plain else plan

        plan = SymbolicPlan(SizedPlans(record.parts, found.launches, graph.name), eager, finished, select)

        def run_for(values: Mapping[Symbol, int]) -> Run:
            return plan.run_for(values)

        return Variant([graph], found.conditions, symbols, run_for, eager)
