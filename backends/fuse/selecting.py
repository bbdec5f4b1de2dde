"""From a plan to what the program calls: the plan under the modes that it is for, beside the graph as ATen, of which
the quicker is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit import _native
from framejit.backends.fuse.account.aten_launches import FIRST_LAUNCH_NS, LAUNCH_NS, MANY
from framejit.backends.fuse.thread_state import AUTOCAST_DEVICES
from framejit.environment.signal_handlers import SignalsWait
from framejit.events import emit
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.account.compiled_graph import CompiledGraph
    from framejit.backends.fuse.cache.folding_record import Folding
    from framejit.backends.fuse.cache.plan_record import PlanRecord

SAMPLES: Final = 3
"""Calls of a plan, and of eager, that are measured before the quicker one is chosen."""
LAUNCHED_SAMPLES: Final = 5
"""As many of a plan that becomes a launch graph: it is captured after a few calls, and those measured reach beyond."""


def note_folding(graph: CompiledGraph, folding: Folding) -> None:
    graph.frozen_bytes, graph.folded_norms = folding.bytes(), folding.folded_norms()


@dataclass(frozen=True)
class Choice:
    """What is to be known of a plan to choose between it and ATen."""

    pure: bool
    """Whether running it twice does no more than running it once."""
    cuda: bool
    samples: int
    """How many calls are measured; none where ATen would draw other random numbers, and so is no choice."""
    aten_launches: int
    """How many kernels ATen launches for it at least; 0 where that is not known."""


def choice_of(record: PlanRecord, is_launched: bool = False) -> Choice:
    """is_launched: Whether the plan becomes a launch graph."""
    samples = 0 if record.draws else LAUNCHED_SAMPLES if is_launched else SAMPLES
    return Choice(record.pure, record.cuda, samples, record.aten_launches)


def selector(
    run: Callable[..., Any], eager: Callable[..., Any], choice: Choice, graph: CompiledGraph, moved: int | None
) -> _native.Selector:
    """A function that calls the quicker of `run` and `eager`, once calls of both were measured, if any are to be;
    `moved` are the bytes that the graph moves, if that is known."""
    launches = choice.aten_launches
    return _native.Selector(
        run, eager, pure=choice.pure, cuda=choice.cuda, samples=choice.samples, on_decision=tell_decision(graph, moved),
        least_eager_ns=launches * LAUNCH_NS, wait_ns=launches * FIRST_LAUNCH_NS if launches >= MANY else 0,
    )


def plainly(plan: Callable[..., Any]) -> Callable[..., Any]:
    """The plan, run with those of gradients and autocast switched off that are on; they are whenever the graph runs."""
    set_grad_enabled = torch._C._set_grad_enabled

    def without_gradients(*inputs: torch.Tensor) -> Any:
        set_grad_enabled(False)
        try:
            return plan(*inputs)
        finally:
            set_grad_enabled(True)

    run = without_gradients if torch.is_grad_enabled() else plan
    if not any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)):
        return run

    def without_autocast(*inputs: torch.Tensor) -> Any:
        with torch._C._DisableAutocast():
            return run(*inputs)

    return without_autocast


def total(record: PlanRecord) -> int | None:
    """The bytes that all kernels of a plan read and write; None where that is not known, as of ATen's operations."""
    moved = [kernel.moved for kernel in record.kernels if kernel.moved is not None]
    return None if record.externs or len(moved) < len(record.kernels) else sum(moved)


def tell_decision(graph: CompiledGraph, moved: int | None) -> Callable[[_native.Selector], None]:
    def decided(selector: _native.Selector) -> None:
        signals = SignalsWait()
        try:
            with signals:
                tell(selector)
        except BaseException as e:
            if e is not signals.raised or not _native.runs_compiled_code():
                raise
            _native.raise_later(e)

    def tell(selector: _native.Selector) -> None:
        compiled, eager = selector.compiled_ns or 0, selector.eager_ns or 0
        times = {"compiled_us": compiled / 1e3, "eager_us": eager / 1e3}
        emit(
            "perf", graph=graph.name, graph_id=graph.graph_id, **times, state=selector.state, bytes=moved,
            eager_is_least=selector.eager_is_least,
        )
        if graph.artifacts:
            from framejit.backends.fuse.account.artifacts import note_decision  # is imported by then

            note_decision(graph)

    return decided
