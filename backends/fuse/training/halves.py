"""Forward and backwards of a graph that needs gradients, each by way of passes, lowering, kernels and plan, or out of
the disk cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import fx

from framejit import _native
from framejit.backends.fuse.account.compiled_graph import CompiledGraph
from framejit.backends.fuse.account.stage_counts import stages
from framejit.backends.fuse.account.telling import ASKED_FOR, tell_found, tell_kernels, tell_launches, tell_training
from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable
from framejit.backends.fuse.autograd_nodes.half import CompiledHalf, Launches
from framejit.backends.fuse.cache.kept_plan import kept_plan
from framejit.backends.fuse.cache.plan_cache import FoundVariant, find_record, find_variant, keep, keep_variant, key_for
from framejit.backends.fuse.cache.plan_key import PlanKey, SymbolicSizes
from framejit.backends.fuse.compile_graph import begun_plan_record
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.graph.passes.pipeline import checked, run_passes
from framejit.backends.fuse.launches.launch_graphs import LaunchGraphs
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.plan.symbolic_plan import SizedPlans
from framejit.backends.fuse.targets.lookup import recorder_of
from framejit.backends.fuse.training.assemble import Divide, assembled
from framejit.backends.fuse.training.buckets import Buckets, buckets_of
from framejit.backends.graph_identity import LAUNCH_GRAPHS
from framejit.environment.collector import resting
from framejit.events import warn


def compile_differentiable(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], account: CompiledGraph,
    symbolic_sizes: SymbolicSizes | None = None,
) -> Differentiable:
    """Compile a graph that gradients are wanted of. Raises NotFusable where it has to run as ATen."""
    if torch.is_inference_mode_enabled():
        raise NotFusable("it asks for gradients in inference mode, where autograd records nothing")
    entrances, buckets = [Entrance.of(example) for example in examples], buckets_of(examples)
    launches = _are_launched(gm, examples, account, symbolic_sizes)

    def compiled(
        buckets: Buckets | None, examples: Sequence[torch.Tensor] | None, account: CompiledGraph, joins: bool
    ) -> Differentiable:
        """`account`: of the forward. `joins`: whether segments that lead to a loss are joined."""
        divide = (lambda: compiled(buckets, None, account.divided(), False)) if joins else None
        return _differentiable(gm, entrances, account, symbolic_sizes, buckets, launches, divide, examples)

    if buckets is not None:
        try:
            return compiled(buckets, examples, account, True)
        except NotFusable as e:
            warn(
                f"the backward of {account.name} is not divided where buckets of DistributedDataParallel are full: "
                f"processes exchange its gradients at its end ({e})"
            )
    return compiled(None, examples, account, True)


def _differentiable(
    gm: fx.GraphModule, entrances: Sequence[Entrance], account: CompiledGraph, symbolic_sizes: SymbolicSizes | None,
    buckets: Buckets | None, launches: bool, divide: Divide | None, examples: Sequence[torch.Tensor] | None,
) -> Differentiable:
    accounts = [account]
    of_backwards: dict[int, CompiledGraph] = {}
    launched = LaunchedHalves() if launches else None

    def compiles(graph: Graph, segment: int | None, symbolic_sizes: SymbolicSizes | None) -> Callable[[], CompiledHalf]:
        if segment is None:
            return _begun(graph, account, symbolic_sizes, launched, True)
        if segment not in of_backwards:
            accounts.append(of_backwards.setdefault(segment, account.of_backward(len(of_backwards))))
        return _begun(graph, of_backwards[segment], symbolic_sizes, launched, False)

    apart = ASKED_FOR if divide is None else ""
    made = assembled(gm, entrances, compiles, accounts, symbolic_sizes, buckets, divide, examples, apart)
    for backward in of_backwards.values():
        backward.run = made
    tell_training(accounts, made.kept, made.computed_again, made.apart)
    return made


def _are_launched(
    gm: fx.GraphModule, examples: Sequence[torch.Tensor], account: CompiledGraph, symbolic_sizes: SymbolicSizes | None
) -> bool:
    """Whether what the halves launch is to be one graph each."""
    if not gm.meta.get(LAUNCH_GRAPHS) or not any(recorder_of(tensor.device) for tensor in examples):
        return False
    if symbolic_sizes is not None:
        tell_launches(account)("plain", "gradients are wanted of it, and sizes are left open")
    return symbolic_sizes is None


class LaunchedHalves:
    """The halves of one graph that are launched as graphs: backwards take what the forward's keeps."""

    def __init__(self) -> None:
        self._forward: LaunchGraphs | None = None

    def launches(self, plans: SizedPlans, account: CompiledGraph, is_forward: bool) -> Launches:
        """What makes of a half's plan what is launched."""

        def made(plan: _native.Plan, n_seen: int | None) -> LaunchGraphs:
            parts, tell = plans.parts_for({}), tell_launches(account)
            if not is_forward:
                return LaunchGraphs(plan, parts, recorder_of, tell, n_seen, lambda: self._forward)
            self._forward = LaunchGraphs(plan, parts, recorder_of, tell, n_seen)
            return self._forward

        return made


@contextmanager
def _compiling() -> Iterator[None]:
    """Halves run with gradients and autocast off."""
    with resting(), torch.no_grad(), torch._C._DisableAutocast():
        yield


def _begun(
    graph: Graph, account: CompiledGraph, sizes: SymbolicSizes | None, launched: LaunchedHalves | None,
    is_forward: bool,
) -> Callable[[], CompiledHalf]:
    """What gives the plans of a half. Its kernels are being compiled meanwhile, where others can do that."""
    with _compiling():
        checked(graph)
        stages["record"] += 1
        text = account.recorded = text_of(graph)
        key = key_for(graph, text, False, {}, sizes, account.autotune)
        found, variants = _found(key, account)
        planned = begun_plan_record(run_passes(graph, None, ()), False, account) if found is None else None

    def made() -> FoundVariant:
        if found is not None:
            tell_found(account, found.record)
            return found
        assert planned is not None
        record, launches = planned()
        if key is not None and sizes is None:
            keep(key, record)
        elif key is not None:
            keep_variant(key, record, variants)
        tell_kernels(account, record.kernels)
        return FoundVariant(record, launches, ())

    def compiled() -> CompiledHalf:
        with _compiling():
            variant = made()
            plans = SizedPlans(variant.record.parts, variant.launches, account.name)
            kept = None if key is None else kept_plan(key, graph, [*text.operations], [*text.devices], False)
            as_graphs = None if launched is None else launched.launches(plans, account, is_forward)
            return CompiledHalf(plans.plan_for, variant.conditions, kept, as_graphs)

    return compiled


def _found(key: PlanKey | None, account: CompiledGraph) -> tuple[FoundVariant | None, list[bytes]]:
    """What the disk cache has for a half, and all that it has for other sizes."""
    if key is None:
        return None, []
    return (find_record(key, account), []) if key.sizes is None else find_variant(key, account)
