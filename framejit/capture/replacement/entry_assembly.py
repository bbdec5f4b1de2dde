"""The making of an entry from a finished capture: its graph compiled, its replacement code, its guards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from time import perf_counter
from types import CodeType
from typing import Any

import torch

from framejit import _native as native
from framejit.backends.autocast_nesting import nesting
from framejit.backends.graph_identity import identify, new_graph_id
from framejit.backends.registry import compile_with_backend, is_built_in
from framejit.backends.symbolic_sizes import takes_symbolic_sizes
from framejit.bytecode.flattened import flattened
from framejit.capture.breaks.kept_step import Break
from framejit.capture.capture import Capture
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.kept_entry import may_be_kept
from framejit.capture.replacement.codegen import Codegen
from framejit.capture.replacement.entry_tag import EntryTag
from framejit.capture.replacement.graph_effects import ONLY_NESTING
from framejit.capture.replacement.graph_failure import FirstKeeper, GraphFailure, Keeper, Rehearsal
from framejit.capture.replacement.keep_entry import KeptParts, keep_entry
from framejit.capture.replacement.left_state import leave_state_to_replacement
from framejit.capture.weight_guards import Seen, candidates, guard_folded, weight_versions
from framejit.config import config
from framejit.environment.collector import working
from framejit.errors import GuardError
from framejit.events import emit, listening
from framejit.events.selected import tell_selected
from framejit.guards.diff import explain_miss
from framejit.guards.guard import GuardRecord, record
from framejit.guards.lower import LoweredGuards, lowered
from framejit.guards.tree_text import render
from framejit.kept.store import tell_not_kept
from framejit.values.tensors.gradients.gradient_hooks import check_hooks
from framejit.values.tensors.tensor import TensorValue


def codegen(compilation: FrameCompilation, capture: Capture, line: int | None) -> Codegen:
    """A generator of replacement code for the frame, whose instructions are attributed to `line`."""
    return Codegen(capture, line, compilation.function_place)


def plain_entry(compilation: FrameCompilation, capture: Capture, reason: str) -> native.Entry:
    """Nothing to compile for these guards: run the function's own code."""
    guards = lowered(capture.guards())
    entry = _entry(compilation, capture, flattened(compilation.fn.__code__), [], guards, native.RUNS_USER_CODE, "eager")
    _add_entry(compilation, capture, entry, reason, 0)
    if may_be_kept(compilation.owner):
        keep_entry(compilation, capture, entry, guards, reason, None)
    return entry


def compiled_entry(
    compilation: FrameCompilation, capture: Capture, cg: Codegen, state: str, reason: str, at_break: Break | None = None
) -> native.Entry:
    """Replacement code that calls the compiled graph, if there is one, and does what `cg` was told to do behind it:
    return, or go on at a break."""
    compiled, inputs, folded, module = None, list[TensorValue](), tuple[Seen, ...](), None
    failure: GraphFailure | None = None
    keeper: Callable[..., Any] | None = None
    first: Rehearsal | FirstKeeper | None = None
    check_hooks(cg)
    cg.left_state = leave_state_to_replacement(capture)
    has_nodes = any(n.op not in ("placeholder", "output") for n in capture.graph.graph.nodes)
    if has_nodes:
        capture.sizes.drop_unused_nodes()
        module, inputs, examples = capture.graph.finish(cg.outputs)
        cg.em.expect_sources([i.source for i in inputs if i.source is not None])
        failure = GraphFailure(compilation, capture, module, inputs)
        effects = capture.graph_effects()
        taken = effects.precautions()
        shared = effects.kept_where_shared
        if shared:
            sources = [[v.source for v in values if v.source is not None] for values in (shared, inputs)]
            keeper = Keeper(module.graph, taken, *sources)
        elif taken:
            keeper = nesting if taken == ONLY_NESTING else Keeper(module.graph, taken)
        weights = candidates(compilation, capture, inputs, examples)
        is_ours = is_built_in(compilation.options.backend)
        operations = "" if is_ours else module.code
        compiled = _compile_graph(compilation, capture, module, examples)
        # Where nothing is written or warned of, a failed run does no harm, if it fails: ATen's operations do, and our
        # own backend tries those it takes over.
        is_tried = is_ours or (compiled == module.forward and module.code == operations)
        may_refuse = bool(effects.writes or effects.warning) and len(effects.nodes) > 1 and bool(effects.refusing)
        if (may_refuse or not is_tried) and effects.can_be_rehearsed:
            first = Rehearsal(compilation, capture, module)
        elif may_refuse or effects.drawing:  # one operation may draw before it raises, as dropout of integers
            first = FirstKeeper(compilation, module.graph, effects.precautions(first_run=may_refuse))
        if capture.overrides.met:
            compiled = partial(_run_without_overrides, compiled)
        folded = guard_folded(capture, weights)
    code = cg.code(compiled, inputs, failure, keeper)
    if listening():
        emit("bytecode", frame_id=compilation.frame_id, original=compilation.fn.__code__, rewritten=code)
    guards = lowered(capture.guards())
    proper = _entry(compilation, capture, code, cg.em.slots, guards, 0, state, folded)
    served = proper
    if first is not None:
        cg.em.renew_slots()
        parts = (first, None) if isinstance(first, FirstKeeper) else (keeper, first)
        served = native.Entry(
            cg.code(compiled, inputs, failure, *parts), compilation.fn, proper.guards, tuple(cg.em.slots), 0, proper.tag
        )
        first.proper = proper
    _add_entry(compilation, capture, served, reason, int(has_nodes))
    if may_be_kept(compilation.owner):
        if isinstance(first, FirstKeeper) and may_refuse:
            tell_not_kept(
                compilation.function_place, "its graph may raise for reasons that can't be tried before its first run"
            )
        else:
            graph = None
            if failure is not None and module is not None and compiled is not None:
                graph = KeptParts(module, compiled, failure, keeper)
            rehearsal = first if isinstance(first, Rehearsal) else None
            keep_entry(compilation, capture, proper, guards, reason, graph, at_break, rehearsal)
    return served


def _run_without_overrides(compiled: Callable[..., Any], *inputs: torch.Tensor) -> Any:
    """Run a graph that has the operations behind the program's `__torch_function__`, which has been inlined."""
    with torch._C.DisableTorchFunctionSubclass():
        return compiled(*inputs)


def _compile_graph(
    compilation: FrameCompilation, capture: Capture, module: torch.fx.GraphModule, examples: list[torch.Tensor]
) -> Any:
    graph_id = new_graph_id()
    identify(module, graph_id)
    emit(
        "graph", frame_id=compilation.frame_id, graph_id=graph_id, graph_module=module, n_ops=capture.graph.n_ops,
        example_inputs=examples,
    )
    capture.restore_state()
    if not takes_symbolic_sizes(compilation.options.backend):
        capture.guard_places_of_symbolic_inputs()
    if capture.graph.n_ops < config.min_graph_size:
        return module.forward
    # a full collection, with a large library loaded, would take as long as half of our own backend's work; what others
    # do is theirs
    with nullcontext() if is_built_in(compilation.options.backend) else working():
        if compilation.options.verify:
            return _compile_watched(compilation, module, examples)
        return compile_with_backend(compilation.options, module, examples, compilation.frame_id)


def _compile_watched(compilation: FrameCompilation, module: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Any:
    from framejit.verify.graph_runs import before_compilation  # for those who verify
    from framejit.verify.sampling import watched_graph

    graph = before_compilation(module, compilation.options)
    compiled = compile_with_backend(compilation.options, module, examples, compilation.frame_id)
    return watched_graph(compiled, graph, compilation.function_place)


def _entry(
    compilation: FrameCompilation,
    capture: Capture,
    code: CodeType,
    slots: list[native.Slot],
    guards: LoweredGuards,
    flags: int,
    state: str,
    folded: tuple[Seen, ...] = (),
) -> native.Entry:
    tag = EntryTag(
        [record(g) for g in guards.guards],
        compilation.points,
        state,
        capture.changing,
        n_ops=capture.graph.n_ops,
        frozen=weight_versions(folded, compilation.owner),
        weight_changes=compilation.weight_changes,
    )
    return native.Entry(code, compilation.fn, guards.tree(), tuple(slots), flags, tag)


def _add_entry(
    compilation: FrameCompilation, capture: Capture, entry: native.Entry, reason: str, n_graphs: int
) -> None:
    fn, flat_args, tag, tree = compilation.fn, compilation.flat_args, entry.tag, entry.guards
    capture.restore_state()
    if config.debug and not capture.overrides.met and not tree.check(flat_args, fn):
        miss = explain_miss(tag.records, tree, flat_args, fn)
        raise GuardError(f"a new entry of {fn.__qualname__} fails its own guards: {miss}")
    if listening():
        emit(
            "guards", frame_id=compilation.frame_id, guards=[_renamed(compilation, r) for r in tag.records],
            tree_text=render(capture.guards()),
        )
    compilation.owner.add_entry(entry)
    tell_selected(compilation.frame_id, compilation.place["function"], capture.selected)
    emit(
        "frame_done",
        **compilation.place,
        state=tag.state,
        reason=reason,
        code="",
        seconds=perf_counter() - compilation.started,
        n_graphs=n_graphs,
        n_ops=capture.graph.n_ops,
        n_guards=len(tag.records),
    )


def _renamed(compilation: FrameCompilation, guard: GuardRecord) -> GuardRecord:
    """A guard on arguments of a resume function, under the names the program has for the values."""
    if not any(name.startswith("__") for name in (guard.source_name, *guard.also_names)):
        return guard
    name, *others = (compilation.origin(name)[0] for name in (guard.source_name, *guard.also_names))
    text = compilation.in_program_terms(guard.text.replace(guard.source_name, name))
    return guard._replace(source_name=name, also_names=tuple(others), text=text)
