"""Who touches which memory of a plan: kernels of ours, whose addresses a launch graph can be given anew at each launch,
or operations of a library, which keep those of the capture."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field
from functools import cache
from typing import Any, Final

import torch

from framejit import _native
from framejit.backends.clock_reads import CLOCK_READ
from framejit.backends.draws.numpy_random import DRAWN_BY_NUMPY
from framejit.backends.draws.own_generators import DRAWN_TENSOR
from framejit.backends.draws.python_random import DRAWN, DRAWN_NUMBERS
from framejit.backends.fuse.launches.draws import drawn_slot
from framejit.backends.fuse.launches.recorder import NotCapturable
from framejit.backends.fuse.plan.plan_functions import (
    count_back,
    count_exactly,
    counted_apart,
    detached_view,
    reinterpreted,
    view_in_another_dtype,
    view_of,
)
from framejit.backends.fuse.plan.plan_parts import PlanParts
from framejit.backends.number_calls import call_of_numbers
from framejit.late_dataclass import dataclass

Step = tuple[Any, ...]

VIEWS: Final[tuple[Callable[..., Any], ...]] = (
    view_of, detached_view, counted_apart, view_in_another_dtype, reinterpreted, torch.Tensor.detach
)
"""Functions that launch nothing: they make tensors over memory that is there."""
COUNTS: Final[tuple[Callable[..., Any], ...]] = (torch._C._increment_version, count_back, count_exactly)
"""Functions that change nothing but versions of tensors."""


@dataclass(frozen=True)
class Place:
    """Where a value of a plan lies."""

    root: int
    """The slot of the value whose memory it is: an input, or what a step allocates or gives."""
    offset: int
    """Bytes behind the beginning of that."""


@dataclass
class MemoryUse:
    """Who reads and writes the memory of a plan, by slots."""

    places: dict[int, Place]
    made_by: dict[int, Step] = field(default_factory=dict)
    """The step that puts a value into a slot; inputs have none."""
    of_library: set[int] = field(default_factory=set)
    """Roots that something other than kernels of ours reads or writes: their memory must lie where it lay in the
    capture."""
    launched_on: set[int] = field(default_factory=set)
    """Roots that anything that is launched reads or writes."""
    seen: dict[int, set[int]] = field(default_factory=dict)
    """By the slot of a view that a function made, the roots of what it may be a view of: where it begins is not known
    here."""

    def launches(self, roots: Iterable[int], by_library: bool) -> None:
        """Note that something that is launched reads or writes there."""
        for root in roots:
            self.launched_on.add(root)
            if by_library:
                self.of_library.add(root)
            self.launches(self.seen.get(root, ()), True)


def memory_use(parts: PlanParts, device: torch.device) -> MemoryUse:
    """Who touches what in a plan with numbers for its kernels. Raises NotCapturable for one that does not do all its
    work on the device."""
    use = MemoryUse({slot: Place(slot, 0) for slot in range(parts.n_inputs)})
    for step in parts.steps:
        _note(use, step, device)
    return use


def _note(use: MemoryUse, step: Step, device: torch.device) -> None:
    kind = step[0]
    if kind == "empty":
        if step[5].type != device.type:
            raise NotCapturable(f"it makes a tensor on the device {step[5]}")
        _root(use, step[1], step)
    elif kind == "inherit":  # nobody but the plan holds it while capturing, and a launch graph takes no memory over
        _, slot, _, sizes, strides, dtype, where, _ = step
        _root(use, slot, ("empty", slot, sizes, strides, dtype, where))
    elif kind == "reinterpret":
        _, slot, base, _, _, offset, dtype = step
        place = use.places[base]
        use.places[slot] = Place(place.root, place.offset + offset * dtype.itemsize)
        use.made_by[slot] = step
    elif kind == "cuda_kernel":
        use.launches((use.places[arg[1]].root for arg in step[5] if arg[0] == "p"), False)
    elif kind == "call":
        _note_call(use, step)
    elif kind == "constant":
        _root(use, step[1], step)
        use.of_library.add(step[1])
    elif kind not in ("expect", "free"):
        raise NotCapturable("a part of it runs on the CPU" if kind == "cpu_kernel" else f"it has a step {kind!r}")


def _note_call(use: MemoryUse, step: Step) -> None:
    _, function, args, kwargs, results = step
    if function in COUNTS:
        return
    if function in _by_python():
        raise NotCapturable("Python reads or draws a number in it")
    slot = drawn_slot(step)
    looks_at_content = slot is None or slot != results
    taken = {use.places[slot].root for slot in values_in((args, kwargs))}
    if function not in VIEWS and function is not _empty_like() and looks_at_content:
        use.launches(taken, True)
    for slot in results if isinstance(results, tuple) else (results,):
        if slot is None:
            continue
        _root(use, slot, step)
        if looks_at_content:
            use.of_library.add(slot)
        if function in VIEWS:
            use.seen[slot] = taken


@cache
def _by_python() -> frozenset[Callable[..., Any]]:
    """Operations that Python carries out, on the CPU: no launch would do them again."""
    operations = (CLOCK_READ, DRAWN, DRAWN_NUMBERS, DRAWN_BY_NUMPY, DRAWN_TENSOR)
    return frozenset((*(operation._op for operation in operations), call_of_numbers))


@cache
def _empty_like() -> Callable[..., Any]:
    """An operation that launches nothing, and looks at no content of what it is given."""
    return torch.ops.aten.empty_like.default._op


def _root(use: MemoryUse, slot: int, step: Step) -> None:
    use.places[slot] = Place(slot, 0)
    use.made_by[slot] = step


def values_in(tree: Any) -> Iterator[int]:
    """The slots that stand in the arguments of a call, or among outputs."""
    if isinstance(tree, _native.Value):
        yield tree.index
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from values_in(item)
    elif isinstance(tree, (tuple, list)):
        for item in tree:
            yield from values_in(item)


@dataclass(frozen=True)
class Results:
    """How the outputs of a plan come about behind a launch."""

    fresh: tuple[int, ...]
    """Slots of memory that kernels of ours write into: it can be another at each launch."""
    copied: tuple[int, ...]
    """Slots of what libraries give or touch: it is copied from where it lies."""
    kept: tuple[int, ...]
    """Those of them that no output leads to which the program sees."""
    drawn: frozenset[int]
    """Slots of random numbers that were drawn before the launch, in whose memory outputs lie."""
    steps: tuple[Step, ...]
    """Steps that make outputs of these and of inputs, and count their writes, without launching anything."""


def results_of(parts: PlanParts, use: MemoryUse, n_seen: int | None = None) -> Results:
    """How the outputs of a plan come about behind each launch of its graph. `n_seen`: so many of them, the first, are
    seen by the program; None for all."""
    fresh, copied, repeated, drawn = _ways(parts.outputs, use)
    seen = fresh | copied if n_seen is None else set().union(*_ways(parts.outputs[:n_seen], use)[:2])
    made = {id(use.made_by[slot]) for slot in repeated}
    known = fresh | copied | repeated
    steps = tuple(step for step in parts.steps if id(step) in made or _counts_only(step, known))
    kept = tuple(sorted((fresh | copied) - seen))
    return Results(tuple(sorted(fresh)), tuple(sorted(copied)), kept, frozenset(drawn), steps)


def _ways(outputs: tuple[Any, ...], use: MemoryUse) -> tuple[set[int], set[int], set[int], set[int]]:
    """The slots that outputs lead to: of memory that kernels of ours write, of what libraries touch, of what steps make
    of these without a launch, and of random numbers."""
    fresh: set[int] = set()
    copied: set[int] = set()
    repeated: set[int] = set()
    drawn: set[int] = set()
    waiting = [*values_in(outputs)]
    while waiting:
        slot = waiting.pop()
        step = use.made_by.get(slot)
        if step is None or slot in fresh | copied | repeated:
            continue
        if step[0] == "empty":
            (copied if slot in use.of_library else fresh).add(slot)
        elif step[0] in ("reinterpret", "constant"):
            repeated.add(slot)
            waiting += [step[2]] if step[0] == "reinterpret" else []
        elif step[1] in VIEWS:
            repeated.add(slot)
            waiting += values_in((step[2], step[3]))
        else:
            (drawn if drawn_slot(step) == slot else copied).add(slot)
    return fresh, copied, repeated, drawn


def _counts_only(step: Step, slots: set[int]) -> bool:
    """Whether a step says how often results were written that are among the slots."""
    return step[0] == "call" and step[1] is count_exactly and slots.issuperset(values_in(step[2]))
