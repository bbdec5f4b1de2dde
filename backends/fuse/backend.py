"""The backend `fuse`: a graph goes through the stages one after the other and comes out as a selector that is never
slower than eager."""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native
from framejit.backends.frozen_weights import FrozenWeight
from framejit.backends.fuse.account.compiled_graph import CompiledGraph, name_of, recall, remember
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.account.telling import tell_fused, tell_kernels, tell_launches, tell_unfused
from framejit.backends.fuse.cache.kept_plan import kept_plan
from framejit.backends.fuse.cache.plan_cache import FoundPlan, find, find_variant, keep, keep_variant, key_for
from framejit.backends.fuse.cache.plan_key import SymbolicSizes
from framejit.backends.fuse.cache.plan_record import PlanRecord
from framejit.backends.fuse.compile_graph import plan_record
from framejit.backends.fuse.graph.frozen_values import frozen_weights
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import GraphText, text_of
from framejit.backends.fuse.graph.passes.pipeline import checked, graph_before, run_passes
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.in_parts import GraphInParts, is_in_parts, pulls_back, why_whole, without_traced
from framejit.backends.fuse.launches.launch_graphs import LaunchGraphs
from framejit.backends.fuse.layers.expansion import Uneven
from framejit.backends.fuse.layers.repeated_nodes import ShortGraph
from framejit.backends.fuse.layers.shortened import Shortened, shortened
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.fuse.not_fusable import KernelFailed, NeedsGradients, NotFusable, PassFailed
from framejit.backends.fuse.parts_between_data import PartsBetweenData, why_undivided
from framejit.backends.fuse.plan.heap import keep_heap
from framejit.backends.fuse.plan.symbolic_plan import SizedPlans, SymbolicPlan
from framejit.backends.fuse.selecting import choice_of, note_folding, plainly, selector, total
from framejit.backends.fuse.sizes.by_size import CompiledBySize, Variant, has_symbolic_sizes, has_symbols
from framejit.backends.fuse.sizes.open_inputs import open_inputs, sizes_are_read
from framejit.backends.fuse.sizes.part_by_size import PartBySize
from framejit.backends.fuse.sizes.static_sizes import of_sizes
from framejit.backends.fuse.targets.lookup import recorder_of
from framejit.backends.fuse.targets.target import KernelLaunch
from framejit.backends.fuse.training import compile_differentiable
from framejit.backends.graph_identity import AUTOTUNE, LAUNCH_GRAPHS, SAME_RANDOM_NUMBERS, identity
from framejit.backends.opaque_call import OpaqueCall, TraceableCall
from framejit.config import config
from framejit.environment.collector import resting
from framejit.environment.imports_under_way import met_half_a_module
from framejit.events import warn
from framejit.fakes.data_sizes import with_data_sizes

if TYPE_CHECKING:
    from framejit.backends.fuse.plan.plan_parts import PlanParts
    from framejit.symbols.conditions import Condition, Conditions
    from framejit.symbols.expression import Symbol

Weights = dict[int, tuple[torch.Tensor, FrozenWeight]]
"""The frozen weights among a graph's inputs, by position, and what goes with each."""

MOST_LAUNCHED: Final = 64
"""Combinations of sizes of a variant that become launch graphs."""

_numbers = itertools.count()
_missing: dict[str, str] = {}
"""For a package that can't be imported what users were told: the same for each graph, and so once."""


def fuse_graph(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a graph to fused kernels and a plan that runs them.

    What comes back takes the graph's inputs and gives the tuple of its outputs, as `gm.forward` does, which runs
    instead where nothing can be fused, where a kernel cannot be compiled (with one warning), and where it measures
    quicker.
    """
    of_data = with_data_sizes(gm.graph.nodes)
    if of_data is not None:
        whole = why_undivided(gm)
        parts = None if whole else PartsBetweenData(gm, _compile_part)
        if parts is None or not parts.parts:
            whole = whole or "what stands before and behind that is too little for kernels"
            return _left_to_aten(gm, f"data decides the sizes of {of_data.name}, and {whole}")
        return parts
    if is_in_parts(gm):
        without_traced(gm, pulls_back)
        whole = why_whole(gm)
        if whole:
            return _left_to_aten(gm, whole)
        in_parts = GraphInParts(gm, _compile_between)
        in_parts.compile_first(example_inputs)
        return in_parts
    if has_symbols(gm):
        opaque = next((node.target for node in gm.graph.nodes if _is_opaque(node.target)), None)
        if opaque is not None:  # whose function must not run before the graph does
            return _left_to_aten(gm, opaque.why)
        if not has_symbolic_sizes(gm):
            return _compile_static(gm, example_inputs, ())[0]
        return CompiledBySize(gm, example_inputs, _compile_symbolic, _compile_static).switch()
    graph = _account(gm)
    remember(gm, graph)
    try:
        with resting():  # a full collection would take as long as half of the stages, with a large library loaded
            graph.run = _compile(gm, example_inputs, graph)
    except NotFusable as e:
        if without_traced(gm) and not why_whole(gm):
            return GraphInParts(gm, _compile_between)
        graph.reason, graph.left_to_aten = str(e), True
        tell_unfused(graph)
    except Exception as e:
        if met_half_a_module(e):
            raise
        _failed(gm, example_inputs, graph, e)
    if config.artifacts and not graph.artifacts:
        _write_down(gm, example_inputs, graph)
    return graph.run or gm.forward


def _is_opaque(target: Any) -> bool:
    """Whether a node calls a function as a whole."""
    return isinstance(target, OpaqueCall) and not isinstance(target, TraceableCall)


def _compile_between(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Compile a part of a graph with sizes that are left open: those of its inputs may be computed of others that it
    does not have."""
    return fuse_graph(gm, inputs) if sizes_are_read(gm) else _compile_part(gm, inputs, lambda: None)


def _compile_part(
    gm: torch.fx.GraphModule, inputs: list[torch.Tensor], give_up: Callable[[], None]
) -> Callable[..., Any]:
    """Compile a part of a graph in which data decides sizes, which its inputs have."""
    try:
        open_inputs(gm)
    except NotFusable as e:
        return _left_to_aten(gm, str(e))
    except Exception as e:  # in the midst of the program: what goes wrong costs speed only
        graph = _account(gm)
        remember(gm, graph)
        _failed(gm, inputs, graph, e)
        return gm.forward
    if not has_symbolic_sizes(gm):
        return fuse_graph(gm, inputs)
    return PartBySize(gm, inputs, _compile_symbolic, _compile_static, give_up).switch()


def _left_to_aten(gm: torch.fx.GraphModule, reason: str) -> Callable[..., Any]:
    graph = _account(gm)
    remember(gm, graph)
    graph.reason, graph.left_to_aten = reason, True
    tell_unfused(graph)
    return gm.forward


def _account(gm: torch.fx.GraphModule) -> CompiledGraph:
    """A graph that framejit captured is named after its number there; others are counted."""
    number = identity(gm)
    if number is None:
        return CompiledGraph(f"uncaptured_{next(_numbers)}", weakref.ref(gm), autotune=AUTOTUNE in gm.meta)
    return CompiledGraph(name_of(number, gm.meta), weakref.ref(gm), number, AUTOTUNE in gm.meta)


def _failed(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception
) -> None:
    graph.reason = str(error) if isinstance(error, (KernelFailed, PassFailed)) else f"{type(error).__name__}: {error}"
    tell_unfused(graph)
    if config.debug:
        _write_down(gm, example_inputs, graph, error)
        raise error
    cause = error if error.__cause__ is None else error.__cause__
    package = cause.name if isinstance(cause, ImportError) else None
    text = _missing.get(package) if package else None
    if text is None:
        folder = _write_down(gm, example_inputs, graph, error)
        others = f"; so do all others that need {package}" if package else ""
        details = f" (details in {folder})" if folder else ""
        text = f"{graph.name} could not be compiled and runs as ATen operations: {graph.reason}{others}{details}"
        if package:
            _missing[package] = text
    warn(text)


def _write_down(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, error: Exception | None = None
) -> str:
    from framejit.backends.fuse.account.artifacts import write_artifacts  # for those who debug

    return write_artifacts(graph, gm, example_inputs, error)


def _compile(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph) -> Callable[..., Any]:
    short = shortened(gm, example_inputs)
    try:
        if short is not None:
            try:
                return _compile_inference(gm, short.gm, short.examples, graph, short)
            except Uneven:
                graph.passes.clear()
        return _compile_inference(gm, gm, example_inputs, graph)
    except NeedsGradients:
        return compile_differentiable(gm, example_inputs, graph)


def _compile_inference(
    gm: torch.fx.GraphModule, compiled: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph,
    short: Shortened | None = None
) -> Callable[..., Any]:
    """Compile a graph without gradients by recording `compiled`: itself, or the one that it was shortened to. Raises
    NeedsGradients, and Uneven where the shortened one does not do."""
    recorded, text, tracked = _recorded(compiled, example_inputs, graph)
    weights = frozen_weights(recorded, compiled, example_inputs)
    same_random_numbers = SAME_RANDOM_NUMBERS in gm.meta
    key = key_for(recorded, text, tracked, _tensors(weights), None, graph.autotune, same_random_numbers, short)
    found = find(key, graph, gm.forward) if key is not None else None
    if found is None:
        passed = _passed(recorded, compiled, example_inputs, graph)
        units = None if short is None else partial(_with_fewer, passed, short)
        record, launches = plan_record(passed, tracked, graph, units)
        parts = record.parts.launching(launches)
        found = FoundPlan(record, parts, parts.native((), record.by_aten(gm.forward), graph.name))
        if key is not None:
            keep(key, found.record)
    else:
        _recall(graph, found.record, weights)
    record = found.record
    note_folding(graph, record.folding)
    if record.folding.constants:
        keep_heap(record.parts)
    run: Callable[..., Any] = found.plan
    if record.cuda and gm.meta.get(LAUNCH_GRAPHS):
        run = LaunchGraphs(found.plan, found.parts, recorder_of, tell_launches(graph))
    elif key is not None:
        graph.kept = kept_plan(key, recorded, [*text.operations], [*text.devices], tracked)
    tell_kernels(graph, record.kernels)
    run = plainly(run) if record.plain else run
    return selector(run, gm.forward, choice_of(record, LAUNCH_GRAPHS in gm.meta), graph, total(record))


def _with_fewer(passed: Graph, short: Shortened) -> tuple[ShortGraph, ShortGraph]:
    """A shortened graph that passes have been over, and the same with one unit fewer. Raises Uneven."""
    fewer = short.with_fewer()
    recorded = record_graph(fewer.gm, fewer.examples, keeps)
    for graph, units in ((passed, short.units), (recorded, fewer.units)):
        if graph.described_outputs() & units.given():  # it may hold of these units alone
            raise Uneven
    return ShortGraph(passed, short.units), ShortGraph(run_passes(recorded, fewer.gm, fewer.examples), fewer.units)


def _compile_symbolic(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], conditions: Conditions, symbols: tuple[Symbol, ...]
) -> Variant:
    """Compile a graph for all sizes that are like those of the inputs. Raises NotFusable where it has to be compiled
    for each of them."""
    graph, sizes = _account(gm), SymbolicSizes(symbols, conditions)
    try:
        try:
            record, launches, assumed = _variant(gm, example_inputs, graph, sizes)
        except NeedsGradients:
            return _symbolic_differentiable(gm, example_inputs, graph, sizes)
    except NotFusable:
        raise
    except Exception as e:  # it may go well with sizes that are known: where this is caught it is told
        if config.debug:
            raise
        raise NotFusable(f"{type(e).__name__}: {e}") from e

    # for the record has weights, which must not live as long as the selector
    choice, plain = choice_of(record, LAUNCH_GRAPHS in gm.meta), record.plain
    eager = record.by_aten(gm.forward)
    launched = itertools.count()

    def select(run: Callable[..., Any]) -> _native.Selector:
        graph.run = selector(run, gm.forward, choice, graph, None)
        return graph.run

    def finished(plan: _native.Plan, parts: Callable[[], PlanParts]) -> Callable[..., Any]:
        run: Callable[..., Any] = plan
        if choice.cuda and gm.meta.get(LAUNCH_GRAPHS) and next(launched) < MOST_LAUNCHED:
            run = LaunchGraphs(plan, parts(), recorder_of, tell_launches(graph))
        return plainly(run) if plain else run

    plan = SymbolicPlan(SizedPlans(record.parts, launches, graph.name), eager, finished, select)
    return Variant([graph], assumed, symbols, plan.run_for, eager)


def _symbolic_differentiable(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, sizes: SymbolicSizes
) -> Variant:
    try:
        made = compile_differentiable(gm, example_inputs, graph, sizes)
    except NeedsGradients as e:
        graph.reason = str(e)
        remember(gm, graph)
        tell_unfused(graph)
        raise
    graph.run = made
    return Variant(made.graphs(), made.assumed(), sizes.symbols, made.at, made.as_aten)


def _variant(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph, sizes: SymbolicSizes
) -> tuple[PlanRecord, Sequence[KernelLaunch], tuple[Condition, ...]]:
    """What is to run for symbolic sizes, how its kernels are launched, and the conditions under which it is right."""
    recorded, text, tracked = _recorded(gm, example_inputs, graph, sizes.conditions)
    weights = frozen_weights(recorded, gm, example_inputs)
    key = key_for(recorded, text, tracked, _tensors(weights), sizes, graph.autotune, SAME_RANDOM_NUMBERS in gm.meta)
    if key is not None and not gm.meta.get(LAUNCH_GRAPHS):
        graph.kept = kept_plan(key, recorded, [*text.operations], [*text.devices], tracked)
    found, kept = find_variant(key, graph) if key is not None else (None, [])
    if found is not None:
        _recall(graph, found.record, weights)
        note_folding(graph, found.record.folding)
        return found
    record, launches = plan_record(_passed(recorded, gm, example_inputs, graph), tracked, graph)
    note_folding(graph, record.folding)
    if key is not None:
        keep_variant(key, record, kept)
    return record, launches, sizes.conditions.taken()


def _compile_static(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], sizes: tuple[int, ...]
) -> tuple[Callable[..., Any], CompiledGraph | None]:
    """Compile a graph for the sizes of the inputs."""
    try:
        sized = of_sizes(gm, example_inputs, sizes)
    except NotFusable as e:
        run = _left_to_aten(gm, str(e))
    else:
        run = fuse_graph(sized, example_inputs)
    return run, recall(run)


def _recorded(
    gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph,
    conditions: Conditions | None = None
) -> tuple[Graph, GraphText, bool]:
    """What was captured, recorded; the same as text; and whether autograd would record operations on its inputs."""
    recorded = record_graph(gm, example_inputs, keeps, conditions)
    stages["record"] += 1
    checked(recorded)
    text = graph.recorded = text_of(recorded)
    tensors = (*example_inputs, *(constant.tensor for constant in recorded.constants.values()))
    return recorded, text, torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _passed(
    recorded: Graph, gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor], graph: CompiledGraph
) -> Graph:
    """The recorded graph after all passes."""

    def note(name: str, text: str) -> None:
        graph.passes.append((name, text))

    try:
        passed = run_passes(recorded, gm, example_inputs, note if config.artifacts else None)
    except PassFailed as e:
        graph.passes.append((f"before_{e.name}", graph_before(e.name, gm, example_inputs, recorded.conditions)))
        raise
    return passed


def _tensors(weights: Weights) -> dict[int, torch.Tensor]:
    return {position: tensor for position, (tensor, _) in weights.items()}


def _recall(graph: CompiledGraph, record: PlanRecord, weights: Weights) -> None:
    """Have a plan that was found in a graph's account, and the weights guarded whose content is in it."""
    for position in record.folding.weights():
        weights[position][1].folded = True
    tell_fused(graph, record.before_fusion, record.after_fusion)
    graph.externs = [*record.externs]
