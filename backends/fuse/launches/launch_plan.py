"""From a plan to a launch plan: one that allocates what the plan returns, launches the graph that was captured of it,
and makes the outputs. Inputs are read where they are, and outputs are fresh at each launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from framejit import _native
from framejit.backends.fuse.launches.draws import Draw, with_stand_ins
from framejit.backends.fuse.launches.memory_use import MemoryUse, Results, memory_use, results_of
from framejit.backends.fuse.launches.recorder import NotCapturable, Recorder
from framejit.backends.fuse.plan.extent import extent
from framejit.backends.fuse.plan.plan_functions import count_back
from framejit.backends.fuse.plan.plan_parts import PlanParts
from framejit.guards.tensor_layout import LAYOUT
from framejit.late_dataclass import dataclass

Trace = Sequence[tuple[int, int, tuple[int, ...]]]
"""Of each kernel of ours that was launched the number of its step, its node in the graph, and the addresses it got."""


@dataclass(frozen=True)
class LaunchPlan:
    """The few steps that run in a plan's place once its launches are one CUDA graph: allocate outputs, launch, make
    views."""

    plan: _native.Plan
    graph: _native.LaunchGraph
    fixed: tuple[tuple[int, int], ...]
    """Inputs that have to lie where they lay in the capture, and their addresses; for others the fallback runs."""


class Capturer:
    """Makes launch plans of one plan. Raises NotCapturable where that can't be, whatever the inputs."""

    def __init__(
        self, plan: _native.Plan, parts: PlanParts, recorder: Recorder, n_seen: int | None = None
    ) -> None:
        """`n_seen`: so many outputs, the first, are seen by the program; the others are kept for a backward. None: all
        are."""
        self.plan, self.parts, self.recorder = plan, parts, recorder
        self.use: MemoryUse = memory_use(parts, recorder.device)
        self.results: Results = results_of(parts, self.use, n_seen)
        self.kept = frozenset(self.results.kept if LAYOUT["owners"] else ())
        """What is kept lies in memory of the graph's own, where a backward's graph can read it in place."""
        self.watched = tuple(slot for slot in range(parts.n_inputs) if slot in self.use.of_library)
        """Inputs that operations of a library read or write."""

    def capture(
        self, inputs: Sequence[torch.Tensor], moving: Collection[int], fallback: Callable[..., Any]
    ) -> LaunchPlan | None:
        """Capture the plan with these inputs; None if it can't be run with them.

        moving: Inputs that lie elsewhere at each call. Where a library reads one, it is copied to a place of the
            graph's own.
        fallback: Runs the calls that the launch plan can't run.
        """
        self._look_at(inputs)
        placed = {slot for slot in self.watched if slot in moving and self._may_be_placed(slot, inputs[slot])}
        wanted = self.kept.union(self.results.copied)
        versions = [_version(tensor) for tensor in inputs]
        plan, draws = self._drawing_nothing()

        def run() -> tuple[list[torch.Tensor], Any]:
            given = [_like(tensor) if slot in placed else tensor for slot, tensor in enumerate(inputs)]
            before = [_version(tensor) for tensor in given]
            traced = plan.traced(tuple(given), wanted, self.recorder.device)
            writes = {
                slot: _version(tensor) - version
                for slot, (tensor, version) in enumerate(zip(given, before))
                if _version(tensor) != version
            }
            return given, (traced, writes)

        try:
            # what is kept outlives the launch, and graphs in a common pool write into each other's memory
            recorded, (given, (traced, writes)) = self.recorder.record(run, bool(self.kept))
            copied = [draw for draw in draws if draw.slot in self.use.of_library]
            for draw in copied if traced is not None else ():
                draw.have_place()
            if copied:
                recorded, (given, (traced, writes)) = self.recorder.record(run, bool(self.kept))
        finally:
            _set_versions(inputs, versions)  # nothing was carried out as yet
        if traced is None:
            return None
        trace, tensors = traced
        self._check_copied(given, inputs, tensors)
        drawn = {draw.slot: draw for draw in draws}
        nodes, pointers = self._nodes(trace, drawn)
        graph = _native.LaunchGraph(recorded, nodes, bool(self.kept))
        places = tuple((slot, given[slot].data_ptr(), self.parts.spans[slot]) for slot in sorted(placed))
        back = tuple(_span(slot, tensors[slot]) for slot in sorted(tensors) if slot not in self.kept) + tuple(
            place for place in places if place[0] in self.parts.alone
        )
        random = tuple(_span(draw.slot, draw.place) for draw in draws if draw.place is not None)
        places += random
        back += tuple(span for span in random if span[0] in self.results.drawn)  # kernels may have written there
        fixed = tuple((slot, inputs[slot].data_ptr()) for slot in self.watched if slot not in placed)
        steps = [
            ("ready", graph),
            *(_place(slot, tensors[slot]) for slot in sorted(self.kept)),
            *(draw.before_launch() for draw in draws),
            *(
                self._allocation(slot, tensors.get(slot))
                for slot in (*self.results.fresh, *self.results.copied)
                if slot not in self.kept
            ),
            ("graph", graph, pointers, places, back, self.recorder.device),
            *_counting(writes),
            *self.results.steps,
        ]
        parts = self.parts
        plan = _native.Plan(
            parts.n_inputs, parts.n_values, steps, parts.outputs, fallback=fallback, aligned=parts.aligned,
            alone=parts.alone, spans=parts.spans, name=self.plan.name, fixed=fixed,
        )
        return LaunchPlan(plan, graph, fixed)

    def _drawing_nothing(self) -> tuple[_native.Plan, list[Draw]]:
        """The plan without what draws random numbers, and that."""
        steps, draws = with_stand_ins(self.parts.steps)
        if not draws:
            return self.plan, draws
        return replace(self.parts, steps=steps).native((), self.plan.fallback, self.plan.name), draws

    def _look_at(self, inputs: Sequence[torch.Tensor]) -> None:
        """Raises NotCapturable for inputs that lie elsewhere and are read: what was in them while capturing would be
        read for good."""
        device = self.recorder.device
        for slot, tensor in enumerate(inputs):
            if slot in self.use.launched_on and (tensor.device.type, tensor.device.index or 0) != (
                device.type, device.index or 0
            ):
                raise NotCapturable(f"its input {slot} is on the device {tensor.device}")

    def _may_be_placed(self, slot: int, tensor: torch.Tensor) -> bool:
        """A copy of what is between the elements could not be written back."""
        is_dense = tensor.numel() == extent(tensor.shape, tensor.stride())
        return not (tensor.is_conj() or tensor.is_neg()) and (is_dense or slot not in self.parts.alone)

    def _check_copied(
        self, given: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], tensors: dict[int, torch.Tensor]
    ) -> None:
        """Raises NotCapturable for results that share memory with an input or another result: copies would not."""
        known = {_storage(tensor) for tensor in (*given, *inputs)}
        for tensor in tensors.values():
            address = _storage(tensor)
            if tensor.numel() and address in known:
                raise NotCapturable("an operation gives a tensor that shares memory with another one")
            known.add(address)

    def _nodes(
        self, trace: Trace, drawn: Collection[int]
    ) -> tuple[tuple[Any, ...], tuple[tuple[int, int, int, int], ...]]:
        """The nodes that are given addresses at each launch, and which: of the data of a slot's value and bytes behind
        it, for a node and argument of it."""
        given = {slot for slot in range(self.parts.n_inputs) if slot not in self.use.of_library}
        given |= {slot for slot in (*self.results.fresh, *drawn) if slot not in self.kept}
        given -= {slot for slot in drawn if slot in self.use.of_library}  # which are copied
        nodes: list[Any] = []
        pointers: list[tuple[int, int, int, int]] = []
        for number, node, addresses in trace:
            _, function, grid, threads, shared_bytes, args, _, _ = self.parts.steps[number]
            places = [self.use.places[arg[1]] if arg[0] == "p" else None for arg in args]
            mine = [
                (place.root, len(nodes), position, place.offset)
                for position, place in enumerate(places)
                if place is not None and place.root in given
            ]
            if mine:
                pointers += mine
                known = tuple(
                    ("p", address) if arg[0] == "p" else arg for arg, address in zip(args, addresses, strict=True)
                )
                nodes.append((node, function, grid, threads, shared_bytes, known))
        return tuple(nodes), tuple(pointers)

    def _allocation(self, slot: int, tensor: torch.Tensor | None) -> tuple[Any, ...]:
        step = self.use.made_by[slot]
        if step[0] == "empty":
            return step
        assert tensor is not None
        return ("empty", slot, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, tensor.device)


def _span(slot: int, tensor: torch.Tensor) -> tuple[int, int, int]:
    """A slot, where its tensor lies, and its bytes."""
    return slot, tensor.data_ptr(), extent(tensor.shape, tensor.stride()) * tensor.itemsize


def _place(slot: int, tensor: torch.Tensor) -> tuple[Any, ...]:
    return ("place", slot, tuple(tensor.shape), tuple(tensor.stride()), tensor)


def _storage(tensor: torch.Tensor) -> int:
    """Where torch keeps what it knows of a tensor's memory. A Python object for that would hold it from then on."""
    address: int = torch._C._storage_address(tensor)  # type: ignore[attr-defined]
    return address


def _like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def _version(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _set_versions(tensors: Sequence[torch.Tensor], versions: Sequence[int]) -> None:
    changed = [
        (tensor, version) for tensor, version in zip(tensors, versions, strict=True) if _version(tensor) != version
    ]
    if changed:
        torch._C._autograd._unsafe_set_version_counter(
            tuple(tensor for tensor, _ in changed), tuple(version for _, version in changed)
        )


def _counting(writes: dict[int, int]) -> list[tuple[Any, ...]]:
    """Count the writes into inputs, as the operations did that the graph was captured of."""
    if not writes:
        return []
    slots = [_native.Value(slot) for slot in writes]
    return [("call", count_back, (slots, [-number for number in writes.values()]), None, None)]


