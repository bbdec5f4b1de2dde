"""From a frame to an entry: attempts at capturing it, each of which may ask for another that breaks the graph
earlier."""

from __future__ import annotations

import inspect
from typing import Any, Final

import torch

from framejit import _native as native
from framejit.backends.clock_reads import CLOCK_READ
from framejit.backends.draws.numpy_random import DRAWN_BY_NUMPY
from framejit.backends.draws.own_generators import DRAWN_TENSOR
from framejit.backends.draws.python_random import DRAWN, DRAWN_NUMBERS
from framejit.backends.fuse import fuse
from framejit.backends.graph_identity import VERSIONS
from framejit.backends.opaque_call import OpaqueCall
from framejit.backends.registry import is_built_in
from framejit.backends.symbolic_sizes import NeedsKnownSizes
from framejit.capture.breaks.graph_break import finish_at_break
from framejit.capture.budget import Budget, OverBudget
from framejit.capture.capture import Broken, Capture
from framejit.capture.dynamic_dims import DynamicDims
from framejit.capture.frame_compilation import FrameCompilation
from framejit.capture.own_changes import FoundOwnChanges
from framejit.capture.recompile import changing_numbers, explain_recompile
from framejit.capture.replacement.entry_assembly import codegen, compiled_entry, plain_entry
from framejit.capture.standing_aside import (
    HOOKS_SEE_EFFECTS,
    guard_aside,
    hooks_would_see_effects,
    reason_to_stand_aside,
)
from framejit.config import config
from framejit.environment.imports_under_way import is_being_imported
from framejit.events import emit, warn
from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_sizes import DataSizes
from framejit.fakes.light_torch import DYNAMO
from framejit.guards.sources import lookups_told_to
from framejit.interpreter.frame_policy import frame_reader
from framejit.signals import (
    FunctionStaysWhole,
    ImportUnderWay,
    NeedsCuts,
    NeedsHistories,
    NeedsStandIns,
    RaisesAsCompiled,
    Restart,
    ResultPlace,
    SizesMustBeKnown,
    SkipFrame,
    Unsupported,
    forget_frames,
)

MAX_RESTARTS = 200


def compile_frame(compilation: FrameCompilation) -> native.Entry | None:
    """Capture the frame and add an entry for it.

    Raises LimitReached, SkipFrame or Unsupported when it stays with plain Python, GraphBreakError under fullgraph, and
    BackendError.
    """
    fn, flat_args = compilation.fn, compilation.flat_args
    if is_being_imported(DYNAMO):  # an operation under a dispatch mode looks into it
        # Sympy and its like, imported with it, call thousands of functions 90,000 times: each is asked about once.
            raise ImportUnderWay("torch._dynamo is being imported", "FJ212")
    emit("capture_started", **compilation.place, fn=fn, flat_args=flat_args)
    aside = reason_to_stand_aside()
    if aside is not None:
        return _entry_aside(compilation, aside)
    changing = changing_numbers(compilation, explain_recompile(compilation))
    dynamic = DynamicDims.of_compilation(compilation)
    _check_capturable(compilation)
    forced: dict[int, Unsupported] = {}
    numbers_are_sizes = is_built_in(compilation.options.backend)
    whole_functions: set[type] = set()
    needs_histories = False
    stand_ins: frozenset[str] | None = frozenset()
    early_cuts: frozenset[ResultPlace] | None = frozenset()
    options = compilation.options
    budget = Budget(may_wait=options.unasked and config.compile_after > 0 and options.backend is fuse)
    for _ in range(MAX_RESTARTS):
        budget.new_attempt()
        capture = Capture(
            fn, flat_args, forced, changing | compilation.points.changing, dynamic, budget, compilation.points.raising,
            not compilation.points.raises_as_compiled, is_built_in(compilation.options.backend),
        )
        capture.whole_functions = whole_functions
        capture.graph.needs_histories = needs_histories
        capture.graph.stand_ins_for = stand_ins
        capture.graph.cuts_for = early_cuts
        # elsewhere the graph breaks where data has sizes, and what comes after knows them
        if compilation.options.fullgraph or numbers_are_sizes:
            capture.graph.metadata.data_sizes = DataSizes(capture.sizes, not compilation.options.fullgraph)
        try:
            with lookups_told_to(capture.class_lookups.told):
                return _attempt(compilation, capture)
        except RecursionError:
            raise SkipFrame("values are nested too deep to capture", "FJ203") from None
        except SizesMustBeKnown:
            numbers_are_sizes = False
        except (SkipFrame, Unsupported):
            if not _takes_numbers(capture):
                raise
            numbers_are_sizes = False
        except Restart as again:
            if _takes_numbers(capture):
                numbers_are_sizes = False
                continue
            if again.seq in forced:
                raise SkipFrame(again.reason.reason, again.reason.code) from None
            forced[again.seq] = again.reason
        except NeedsHistories:
            needs_histories = True
        except FunctionStaysWhole as stays:
            whole_functions.add(stays.function)
            forced.clear()  # steps are counted anew
        except NeedsStandIns as needs:
            stand_ins = None if needs.names is None or stand_ins is None else stand_ins | needs.names
            forced.clear()  # what is broken at may be captured now, or broken elsewhere
        except NeedsCuts as needs_cuts:
            places = needs_cuts.places
            early_cuts = None if places is None or early_cuts is None else early_cuts | places
            forced.clear()  # what is broken at may be captured now, or broken elsewhere
        except RaisesAsCompiled:
            compilation.points.raises_as_compiled = True
            forced.clear()  # steps are counted anew
        except FoundOwnChanges as found:
            for change in found.changes:
                if change.sizes:
                    dynamic.learn(change)
                else:
                    changing |= {change.source_name}
        except NeedsKnownSizes as e:
            name, file, line = compilation.function_place
            warn(
                f"the backend {compilation.options.backend_name!r} compiles {name} anew for each new size: {e.reason}",
                (file, line),
            )
            compilation.points.sizes_known = True
            dynamic = DynamicDims(never=True)
        finally:
            capture.close()
            for reason in forced.values():
                forget_frames(reason)
    raise SkipFrame("too many restarts", "FJ205")


def _entry_aside(compilation: FrameCompilation, reason: str) -> native.Entry:
    """An entry that runs the program as it is for as long as the thread's state is of the same kind."""
    capture = Capture(compilation.fn, compilation.flat_args, {})
    try:
        guard_aside(capture)
        return plain_entry(compilation, capture, reason)
    finally:
        capture.close()


def _check_capturable(compilation: FrameCompilation) -> None:
    code = compilation.fn.__code__
    reader = frame_reader(code, whole=True)
    if reader is not None:
        raise SkipFrame(reader, "FJ201")
    if code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise SkipFrame("a generator or coroutine, whose frame runs in pieces", "FJ208")


def _attempt(compilation: FrameCompilation, capture: Capture) -> native.Entry | None:
    broken = None
    try:
        result = capture.root.run()
    except Broken as e:
        broken = e.with_traceback(None)
    capture.budget.check_cost(capture.graph)
    if broken is not None:  # out here, the exception being handled is the program's
        try:
            if _takes_numbers(capture):
                raise SizesMustBeKnown
            _check_draws(compilation, capture)
            _check_clocks(capture)
            capture.look_for_own_changes()
            _check_parts(compilation, capture)
            return finish_at_break(compilation, capture, broken)
        finally:
            forget_frames(broken.reason)
            del broken
    if compilation.resume is None and capture.graph.n_ops == 0:
        return plain_entry(compilation, capture, "no tensor operations")
    if compilation.resume is None and capture.graph.n_ops < config.min_graph_size:
        return plain_entry(
            compilation, capture, f"fewer tensor operations than config.min_graph_size: {capture.graph.n_ops}"
        )
    if _takes_numbers(capture) and not _can_be_divided(capture):
        raise SizesMustBeKnown
    _check_draws(compilation, capture)
    _check_clocks(capture)
    capture.look_for_own_changes()
    capture.check_modes()
    capture.check_generators()
    if hooks_would_see_effects(capture):
        return plain_entry(compilation, capture, HOOKS_SEE_EFFECTS)
    if not compilation.options.fullgraph:
        capture.break_before_final()
    cg = codegen(compilation, capture, compilation.fn.__code__.co_firstlineno)
    cg.finish_return(result)
    return compiled_entry(compilation, capture, cg, "compiled", "")


def _check_parts(compilation: FrameCompilation, capture: Capture) -> None:
    """Functions that nobody has optimized are left to Python where they fall into small parts, as what loads a sample
    does."""
    if not capture.budget.may_wait:
        return
    points = compilation.points
    nodes = [node for node in capture.graph.graph.nodes if node.op != "placeholder"]
    results: list[Any] = [*tensors_in(node.meta.get("val") for node in nodes)]
    if any(fake.device.type != "cpu" or fake._has_symbolic_sizes_strides for fake in results):
        return
    points.parts[compilation.fn] = capture.graph.n_ops, max((fake.numel() for fake in results), default=0)
    try:
        capture.budget.check_parts(points.parts.values())
    except OverBudget:
        owner = points.owner()
        if owner is not None:
            owner.skip = True
            owner.clear()
        raise


_DRAWERS: Final[dict[Any, str]] = {
    DRAWN: "Python", DRAWN_NUMBERS: "Python", DRAWN_BY_NUMPY: "numpy", DRAWN_TENSOR: "a generator of the program"
}
"""By the operations that draw numbers, whose these are."""


def _check_draws(compilation: FrameCompilation, capture: Capture) -> None:
    """Nothing is drawn of tensors that gradients go to: what leads back through it is not known. A graph that is to be
    launched at once has nothing that Python does in its midst: it ends there, and another begins."""
    at_once = compilation.options.launches_at_once and not compilation.options.fullgraph
    for node in capture.graph.graph.nodes:
        if at_once and (node.target is CLOCK_READ or node.target in _DRAWERS):
            raise Restart(
                capture.graph.origins[node].seq,
                Unsupported('a clock is read, or a number drawn, by Python in mode="reduce-overhead"', "FJ110"),
            )
        given = tensors_in(other.meta.get("val") for other in node.all_input_nodes)
        if node.target in _DRAWERS and any(fake.requires_grad for fake in given):
            raise Restart(
                capture.graph.origins[node].seq,
                Unsupported(f"a number is drawn by {_DRAWERS[node.target]} of what gradients are wanted of", "FJ110"),
            )


def _check_clocks(capture: Capture) -> None:
    """What a clock shows leads to no gradients: run again, the graph would read another time."""
    readings: dict[Any, Any] = {}
    for node in capture.graph.graph.nodes:
        found = (readings[given] for given in node.all_input_nodes if given in readings)
        reading = node if node.target is CLOCK_READ else next(found, None)
        if reading is None:
            continue
        readings[node] = reading
        if any(fake.requires_grad for fake in tensors_in((node.meta.get("val"),))):
            raise Restart(
                capture.graph.origins[reading].seq,
                Unsupported("the time is part of what gradients are wanted of", "FJ110"),
            )


def _takes_numbers(capture: Capture) -> bool:
    """Whether a graph that is not asked to be the only one takes numbers that are read from tensors for sizes."""
    sizes = capture.graph.metadata.data_sizes
    return sizes is not None and sizes.of_numbers_only and capture.graph.metadata.decided_by_data()


def _can_be_divided(capture: Capture) -> bool:
    """Whether a backend can compile what comes before a number is read, and what comes behind."""
    nodes = [node for node in capture.graph.graph.nodes if node.op not in ("placeholder", "output")]
    if any(
        node.op in ("get_attr", "call_module")
        or isinstance(node.target, OpaqueCall)
        or node.target is torch.autograd.grad
        for node in nodes
    ):
        return False
    # what changes torch's state before any number is a size does not say which versions tensors have by then
    unnoted = any("val" not in node.meta and "written" not in node.meta and VERSIONS not in node.meta for node in nodes)
    return not unnoted or not any(node.meta.get("written") for node in nodes)
