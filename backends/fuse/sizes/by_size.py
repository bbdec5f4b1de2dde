"""Graphs with symbolic sizes: captured once, compiled once for a range of sizes.

Kernels take the sizes as arguments. What was generated holds for the sizes that lead to the same decisions as those it
was generated for (a loop of more than so many turns, a size that vectors divide); for others another variant is made.
Where a graph cannot be compiled so, it is compiled for each combination of sizes on its own. Sizes that have not come
before, and that no variant fits, are run by ATen a few times: a size that never comes again costs no compilation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import torch
from torch import fx

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.not_fusable import NeedsGradients, NotFusable
from framejit.backends.fuse.sizes.written_expressions import all_hold
from framejit.backends.graph_identity import identity
from framejit.backends.symbolic_sizes import Place
from framejit.config import config
from framejit.environment.signal_handlers import SignalsWait
from framejit.events import emit, warn
from framejit.guards.saved_tensor_hooks import without_saved_tensor_hooks
from framejit.late_dataclass import dataclass
from framejit.symbols.conditions import Condition, Conditions
from framejit.symbols.expression import Symbol, evaluate
from framejit.symbols.sym_node import expression_of, is_ours

MOST: Final = 64
"""Combinations of sizes, or variants, that are compiled; further ones run as ATen."""
PATIENCE: Final = 3
"""A new variant is made at each PATIENCE-th call with sizes that none fits, where all calls have other sizes."""
OFTEN: Final = 16
"""Where so many new sizes have come, as those of a cache that grows, a variant's conditions are written as a function:
that takes as long as a dozen walks through them, and a call of it a tenth of one."""
MOST_SWITCHED: Final = 12
"""Sizes that the native switch can tell apart."""
REMEMBERED: Final = 4096
"""Combinations of sizes for which what runs is at hand."""

Run = Callable[..., Any]


def has_symbols(gm: fx.GraphModule) -> bool:
    """Whether some input's fake has symbols of framejit's for sizes or strides."""
    return any(isinstance(size, torch.SymInt) and is_ours(size) for size in _sizes_and_strides(gm))


def has_symbolic_sizes(gm: fx.GraphModule) -> bool:
    """Whether one of these is not known after all."""
    return bool(places_of(gm))


@dataclass(eq=False)
class Variant:
    """A compiled form of the graph that is right for all sizes that meet its conditions."""

    graphs: Sequence[CompiledGraph]
    """The accounts of what was compiled."""
    conditions: tuple[Condition, ...]
    symbols: tuple[Symbol, ...]
    run_for: Callable[[Mapping[Symbol, int]], Run]
    """What runs for given sizes."""
    eager: Run
    """What runs for sizes that no variant is made for: the graph as ATen, with the same random numbers."""
    _asked: int = field(default=0, init=False)
    _written: Callable[[tuple[int, ...]], bool] | None = field(default=None, init=False)
    """All conditions as one function."""

    def __post_init__(self) -> None:
        # those on sizes that a part of a graph does not have are guards of the whole graph
        known = {*self.symbols}
        self.conditions = tuple(each for each in self.conditions if known.issuperset(each.expression.symbols()))

    def fits(self, sizes: tuple[int, ...]) -> bool:
        """Whether sizes, in the order of `symbols`, meet the conditions."""
        if self._written is not None:
            return self._written(sizes)
        self._asked += 1
        if self._asked == OFTEN:
            self._written = all_hold(self.conditions, self.symbols)
        values = dict(zip(self.symbols, sizes))
        return all(holds(condition, values) for condition in self.conditions)

    def run(self, sizes: tuple[int, ...]) -> Run:
        return self.run_for(dict(zip(self.symbols, sizes)))


CompileSymbolic = Callable[[fx.GraphModule, list[torch.Tensor], Conditions, tuple[Symbol, ...]], Variant]
CompileStatic = Callable[[fx.GraphModule, list[torch.Tensor], tuple[int, ...]], tuple[Run, CompiledGraph | None]]


class BySize:
    """Takes the graph's inputs, and runs what fits their sizes, to which strides belong that no size tells. `places`
    has for each symbol where it is read."""

    def __init__(self, gm: fx.GraphModule, places: Mapping[Symbol, Place]) -> None:
        self.gm, self.eager = gm, gm.forward
        self._read = tuple(places.values())
        self._symbols = tuple(places)
        self._variants: list[Variant] = []
        self._static: list[CompiledGraph] = []
        self._ready: dict[tuple[int, ...], Run] = {}
        self._seen: set[tuple[int, ...]] = set()
        self._misses = 0
        self._never = self._told_full = False
        self._lock = threading.Lock()
        self.why_static = ""
        """Why the graph is compiled for each combination of sizes on its own; empty if it is not."""

    def _compiled(self, sizes: tuple[int, ...], inputs: list[torch.Tensor]) -> Run:
        """What is made for sizes that nothing fits so far."""
        raise NotImplementedError

    def places(self) -> dict[Symbol, Place]:
        """For each symbol where it is read."""
        return dict(zip(self._symbols, self._read))

    def switch(self) -> Run:
        """The compiled graph, to be called with its inputs: a native switch in front of this object, which comes here
        only for sizes that did not come lately."""
        return _native.SizeSwitch(self._read, self.find) if len(self._read) <= MOST_SWITCHED else self

    def __call__(self, *inputs: torch.Tensor) -> Any:
        run, _ = self.find(*inputs)
        return run(*inputs)

    def find(self, *inputs: torch.Tensor) -> tuple[Run, bool]:
        """The function to call for these inputs, and whether it will be the same at the next call with their sizes."""
        sizes = self._sizes(inputs)
        run = self._ready.get(sizes)
        return (run, True) if run is not None else self._miss(sizes, inputs)

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled, in order."""
        return [*(graph for variant in self._variants for graph in variant.graphs), *self._static]

    def _sizes(self, inputs: Any) -> tuple[int, ...]:
        return tuple([place.read(inputs) for place in self._read])

    def _miss(self, sizes: tuple[int, ...], inputs: tuple[torch.Tensor, ...]) -> tuple[Run, bool]:
        variant = next((variant for variant in self._variants if variant.fits(sizes)), None)
        if variant is not None:
            return self._safely(sizes, lambda: self._remember(sizes, variant.run(sizes))), True
        full = self._never or len(self._variants) + len(self._static) >= MOST
        self._misses += 1
        # a variant serves other sizes, too
        again = sizes in self._seen or (not self.why_static and self._misses % PATIENCE == 0)
        if again and not full:
            return self._safely(sizes, lambda: self._made_for(sizes, list(inputs))), True
        if again and not self._never and not self._told_full:
            self._told_full = True
            self._tell(f"{MOST} variants are compiled, the most: sizes that none of them fits run as ATen")
        if len(self._seen) < REMEMBERED:
            self._seen.add(sizes)
        return self._variants[0].eager if self._variants else self.eager, full

    def _tell(self, reason: str) -> None:
        number = identity(self.gm)
        emit("fusion", graph_id=number, graph=f"graph_{number}", text=reason, reason=reason)

    def _safely(self, sizes: tuple[int, ...], make: Callable[[], Run]) -> Run:
        """What the sizes call for, in the midst of the program: what goes wrong costs speed only."""
        with SignalsWait(), without_saved_tensor_hooks():
            try:
                return make()
            except Exception as e:
                if config.debug:
                    raise
                warn(
                    f"a graph could not be compiled for sizes {sizes}, and runs as ATen operations for them: "
                    f"{type(e).__name__}: {e}"
                )
                return self._remember(sizes, self.eager)

    def _made_for(self, sizes: tuple[int, ...], inputs: list[torch.Tensor]) -> Run:
        with self._lock:
            known = self._ready.get(sizes)
            return known if known is not None else self._remember(sizes, self._compiled(sizes, inputs))

    def _remember(self, sizes: tuple[int, ...], run: Run) -> Run:
        if len(self._ready) >= REMEMBERED:
            self._ready.clear()
        self._ready[sizes] = run
        return run


class CompiledBySize(BySize):
    """Compiles the graph for the sizes that come."""

    def __init__(
        self, gm: fx.GraphModule, example_inputs: list[torch.Tensor], compile_symbolic: CompileSymbolic,
        compile_static: CompileStatic,
    ) -> None:
        super().__init__(gm, places_of(gm))
        self._compile_symbolic, self._compile_static = compile_symbolic, compile_static
        self._conditions: Conditions = next(
            size.node.conditions for size in _sizes_and_strides(gm) if isinstance(size, torch.SymInt)
        )
        self._begin(example_inputs)

    def _begin(self, inputs: list[torch.Tensor]) -> None:
        self._made_for(self._sizes(inputs), inputs)

    def _compiled(self, sizes: tuple[int, ...], inputs: list[torch.Tensor]) -> Run:
        if not self.why_static:
            try:
                return self._variant_for(sizes, inputs).run(sizes)
            except NeedsGradients:
                self._never = True
                return self.eager
            except NotFusable as e:
                self.why_static = str(e)
                self._tell(f"compiled for each combination of sizes on its own: {self.why_static}")
        run, graph = self._compile_static(self.gm, inputs, sizes)
        self._static += [graph] if graph is not None else []
        return run

    def _variant_for(self, sizes: tuple[int, ...], inputs: list[torch.Tensor]) -> Variant:
        """A new variant. Raises NotFusable where the graph has to be compiled for each combination of sizes."""
        conditions, symbols = self._conditions.with_hints(dict(zip(self._symbols, sizes)))
        made = self._compile_symbolic(self.gm, inputs, conditions, tuple(symbols[symbol] for symbol in self._symbols))
        self._variants.append(made)
        return made


def holds(condition: Condition, values: Mapping[Symbol, int]) -> bool:
    """Whether sizes meet a condition."""
    try:
        number = evaluate(condition.expression, values)
    except ZeroDivisionError:  # what was divided by was another number
        return False
    return (number == 0 if condition.relation == "==" else number < 0) == condition.outcome


def placeholders(gm: fx.GraphModule) -> list[fx.Node]:
    """The nodes that stand for the graph's inputs."""
    return [node for node in gm.graph.nodes if node.op == "placeholder"]


def _fake(node: fx.Node) -> Any:
    fake = node.meta.get("val", node.meta.get("example_value"))
    return fake if isinstance(fake, torch.Tensor) else torch.empty(())


def _sizes_and_strides(gm: fx.GraphModule) -> Iterator[Any]:
    """Those of all inputs."""
    for node in placeholders(gm):
        fake = _fake(node)
        yield from (*fake.shape, *_strides(fake))


def _strides(fake: torch.Tensor) -> tuple[Any, ...]:
    return fake.stride() if fake.layout == torch.strided else ()


def _symbolic_dims(sizes: Iterable[Any]) -> Iterator[tuple[int, Symbol]]:
    """The dimensions whose sizes or strides are symbols; one that is known to be a symbol that is read elsewhere has
    that."""
    for dim, size in enumerate(sizes):
        expression = expression_of(size)
        if isinstance(size, torch.SymInt) and expression is not None:
            simplified = size.node.conditions.simplified(expression)
            yield from ((dim, symbol) for symbol in simplified.symbols() if [*simplified.terms] == [(symbol,)])


def places_of(gm: fx.GraphModule) -> dict[Symbol, Place]:
    """For each symbol a place where it is read; all other sizes and strides follow from these by what was asked while
    capturing. Strides are read where no size tells a symbol."""
    places: dict[Symbol, Place] = {}
    fakes = [*map(_fake, placeholders(gm))]
    for is_stride in (False, True):
        for position, fake in enumerate(fakes):
            for dim, symbol in _symbolic_dims(_strides(fake) if is_stride else fake.shape):
                places.setdefault(symbol, Place(position, dim, is_stride))
    return places
