"""What a graph changes besides giving results, and what of that has to be kept so that it can be taken back when an
operation raises.

A call whose graph raises is run again as plain Python (graph_failure.py). That is right if all is as it was when the
graph began: tensors that outlive the graph, random number generators, the nesting of autocast. Writes that come after
the last operation that may raise never have to be taken back, and one that only overwrites can be done again. The rest
is copied before the graph runs, by graphs that need it and no others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.autocast_nesting import NESTING
from framejit.backends.graph_identity import RESIZED
from framejit.backends.may_raise import (
    always_works,
    converts_number,
    draws_numbers,
    is_collective,
    is_quiet,
    may_raise,
    may_warn,
    operation_name,
    warns_at_times,
)
from framejit.capture.graph.written_tensors import EXCHANGED, exchanged_memory, fakes_given, written_by
from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of
from framejit.late_dataclass import dataclass
from framejit.values.tensors.tensor import TensorValue

MOST_COPIED: Final = 1 << 26
"""Bytes a graph copies at most at each call. Where that is not enough it breaks."""
MOST_COMPARED: Final = 32
"""Inputs whose memory is compared at each call at most."""
MOST_REHEARSED: Final = 1 << 28
"""Bytes that are copied once, to try a graph."""
OVERWRITES: Final = frozenset("""
    copy fill zero setitem index_put index_copy index_fill masked_fill masked_scatter scatter
""".split())
"""Operations whose results depend on their first argument, which they write, only where they leave it alone."""
LAYOUT_CHANGES: Final = frozenset(
    """
    t transpose swapaxes swapdims squeeze unsqueeze resize resize_as set detach as_strided rename
    set_data
""".split()
)
"""Operations in place that change more than the numbers in a tensor."""
_NO_DISPATCH: Final = torch._C._disabled_torch_dispatch_impl


@dataclass(frozen=True)
class Precautions:
    """Copies and states to be kept while a graph runs, so that its effects can be undone if one of its operations
    raises."""

    inputs: tuple[TensorValue, ...] = ()
    """The inputs whose numbers are copied."""
    moved: tuple[TensorValue, ...] = ()
    """The inputs that are given other memory, of which it is kept where they lay."""
    random: bool = False
    """Whether the state of random number generators is kept."""
    nesting: bool = False
    """Whether the depth of autocast's nesting is kept."""
    final: fx.Node | None = None
    """The first operation that may raise after something that can't be taken back, if there is one."""

    def __bool__(self) -> bool:
        return bool(self.inputs or self.moved or self.random or self.nesting)


ONLY_NESTING: Final = Precautions(nesting=True)
"""What a graph takes that goes into autocast, or leaves it, and has no operation known to raise at times: memory
may run out."""


_HOLDING: Final = frozenset((torch.float64, torch.complex128, torch.bool))
"""Dtypes that any number can be converted to, without an error."""
_HOLDING_INTS: Final = _HOLDING | {torch.int64, torch.float32, torch.complex64}


def _may_overflow(node: fx.Node) -> bool:
    """Whether an operation converts a number that is known only when the graph runs to a dtype that may not hold it."""
    arguments: list[tuple[int | str, Any]] = [*enumerate(node.args), *node.kwargs.items()]
    for position, arg in arguments:
        number = arg.meta.get("val") if isinstance(arg, fx.Node) else None
        if isinstance(number, (torch.SymInt, float)) and converts_number(node.target, position):
            holding = _HOLDING_INTS if isinstance(number, torch.SymInt) else _HOLDING
            args, kwargs = fakes_given(node)
            tensors = tensors_in((*args, *kwargs.values(), node.meta.get("val")))
            if any(tensor.dtype not in holding for tensor in tensors):
                return True
    return False


class GraphEffects:
    """The effects that a graph's operations may have besides giving results, by position: raising, writing into inputs,
    drawing random numbers, changing torch's state, exchanging tensors with other processes."""

    def __init__(self, graph: fx.Graph, inputs: list[TensorValue], examples: list[torch.Tensor]) -> None:
        self.nodes = [node for node in graph.nodes if node.op in ("call_function", "call_method")]
        self._inputs = [*zip(inputs, examples)]
        loud = [(position, node) for position, node in enumerate(self.nodes) if not is_quiet(node.target)]
        overlapping = {position for position, node in enumerate(self.nodes) if _writes_what_overlaps(node)}
        self.raising = sorted(
            overlapping
            | {position for position, node in loud if may_raise(node.target, *fakes_given(node))}
            | {position for position, node in enumerate(self.nodes) if _may_overflow(node)}
        )
        self.drawing = [position for position, node in loud if draws_numbers(node.target, *fakes_given(node))]
        self.warning = [
            p
            for p, node in enumerate(self.nodes)
            if RESIZED in node.meta or warns_at_times(node.target) and may_warn(node.target, *fakes_given(node))
        ]
        """Where torch may warn: what was shown can't be taken back."""
        self.exchanging = [position for position, node in loud if is_collective(node.target)]
        """Where tensors are exchanged with other processes, which would not do it again."""
        self.nesting = any(node.target in NESTING for node in self.nodes)
        self.owners: dict[int, list[TensorValue]] = {}
        for value in inputs:
            self.owners.setdefault(storage_of(value.fake), []).append(value)
        self._exchanged = exchanged_memory(self.nodes)
        moving = [value for storage in self._exchanged for value in self.owners.get(storage, ())]
        if moving:
            self.owners.update((storage, moving) for storage in self._exchanged)
        by_node = {value.node: value for value in inputs if value.source is not None}
        self.moves = {
            position: by_node[node.args[0]]
            for position, node in enumerate(self.nodes)
            if EXCHANGED in node.meta and node.args[0] in by_node
        }
        """Where inputs are given other memory."""
        self.writes: dict[int, list[int]] = {}
        """For the memory of inputs where it is written."""
        for position, node in enumerate(self.nodes):
            for fake in written_by(node) if position not in self.moves else ():
                if storage_of(fake) in self.owners:
                    self.writes.setdefault(storage_of(fake), []).append(position)

    @property
    def any(self) -> bool:
        """Whether the graph writes into inputs, moves them, draws random numbers or exchanges tensors with other
        processes."""
        return bool(self.writes or self.moves or self.drawing or self.exchanging)

    @property
    def can_be_rehearsed(self) -> bool:
        """Whether the graph may be run on copies of what it writes, for a trial: that takes memory, and only what is
        torch's surely does nothing else."""
        sizes = {
            storage_of(value.fake): _memory_of(example) for value, example in self._inputs_in({*self.writes})
        }
        size = sum(sizes.values())
        return size <= MOST_REHEARSED and all(operation_name(node.target) is not None for node in self.nodes)

    def _inputs_in(self, storages: set[int]) -> list[tuple[TensorValue, torch.Tensor]]:
        """The inputs that may lie in any of these storages of inputs at some point of the graph."""
        owners = {id(value) for storage in storages for value in self.owners[storage]}
        return [(value, example) for value, example in self._inputs if id(value) in owners]

    @cached_property
    def refusing(self) -> list[int]:
        """The operations that may turn out to raise whatever the numbers, though they worked on fakes."""
        # operations that can't be deterministic refuse to run where they have to; a write may be refused because inputs
        # overlap, of which fakes know nothing
        if torch.are_deterministic_algorithms_enabled() or _may_overlap([example for _, example in self._inputs]):
            return [*range(len(self.nodes))]
        # fakes know no limit to how many there are
        devices = {torch.device("cpu"), *(example.device for _, example in self._inputs)}
        return [position for position, node in enumerate(self.nodes) if _may_be_refused(node, devices)]

    @property
    def refused_after_warning(self) -> fx.Node | None:
        """The first operation that may raise whatever the numbers after a warning, in a graph that can't be tried:
        what was shown can't be taken back, and the program's own run would show it again."""
        if not self.warning or self.can_be_rehearsed:
            return None
        return next((self.nodes[position] for position in self.refusing if position > self.warning[0]), None)

    @cached_property
    def refusing_shared(self) -> list[int]:
        """The writes that are refused where an input overlaps another that it did not when the graph was captured."""
        if len(self._inputs) > MOST_COMPARED:
            return []
        return [
            position
            for position in sorted({position for positions in self.writes.values() for position in positions})
            if self._joins_inputs(self.nodes[position])
        ]

    def _joins_inputs(self, node: fx.Node) -> bool:
        """Whether an operation that writes into an input has another tensor in the memory of inputs for an argument."""
        args, kwargs = fakes_given(node)
        given = [fake for fake in tensors_in((*args, *kwargs.values())) if storage_of(fake) in self.owners]
        written = [fake for fake in written_by(node) if storage_of(fake) in self.owners]
        return any(other is not fake for fake in written for other in given)

    @property
    def kept_where_shared(self) -> tuple[TensorValue, ...]:
        """The inputs to be kept besides others where inputs share memory: then a write may be refused after others
        have been done."""
        if not self.refusing_shared or any(value.source is None for value, _ in self._inputs):
            return ()
        usual = self.precautions().inputs
        return tuple(value for value in self.precautions(shared=True).inputs if value not in usual)

    def precautions(self, first_run: bool = False, shared: bool = False) -> Precautions:
        """What has to be kept because an operation may raise for the numbers in its tensors; before the `first_run`,
        because it may raise whatever they are; where inputs are `shared`, because it may refuse that."""
        raising = sorted({*self.raising, *self.refusing}) if first_run else self.raising
        if shared:
            raising = sorted({*raising, *self.refusing_shared})
        if not raising:
            return Precautions(nesting=self.nesting)
        last = raising[-1]
        writes = {
            storage: before
            for storage, positions in self.writes.items()
            if (before := [p for p in positions if p <= last])
        }
        copied = {
            storage
            for storage, positions in writes.items()
            if storage in self._exchanged or not _can_be_repeated(self.nodes, storage, positions)
        }
        kept = self._inputs_in(copied)
        too_much = sum(example.numel() * example.element_size() for _, example in kept) > MOST_COPIED
        lasting = [
            positions[0]
            for storage, positions in writes.items()
            if (too_much and storage in copied)
            or any(_is_lasting(self.nodes[position], self.owners[storage]) for position in positions)
        ]
        lasting += [position + 1 for position in (*self.warning, *self.exchanging) if position < last]
        return Precautions(
            () if too_much else tuple(value for value, _ in kept),
            tuple(dict.fromkeys(value for position, value in self.moves.items() if position <= last)),
            any(position <= last for position in self.drawing),
            self.nesting,
            next((self.nodes[position] for position in raising if position >= min(lasting)), None) if lasting else None,
        )


def may_draw(graph: fx.Graph) -> bool:
    """Whether operations of a graph may change the state of a random number generator."""
    called = (node for node in graph.nodes if node.op in ("call_function", "call_method"))
    return any(draws_numbers(node.target, *fakes_given(node)) for node in called)


def _may_be_refused(node: fx.Node, devices: set[torch.device]) -> bool:
    args, kwargs = fakes_given(node)
    result = node.meta.get("val")
    elsewhere = any(tensor.device not in devices for tensor in tensors_in((result,)))
    return elsewhere or not always_works(node.target, args, kwargs, result) or _writes_what_overlaps(node)


def _may_overlap(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether tensors may share memory. Of those that wrap others, as DTensors do, it is not known."""
    if any(type(tensor).__torch_dispatch__ is not _NO_DISPATCH for tensor in tensors):
        return True
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.layout is torch.strided}
    return len(memory) < len(tensors)


def _memory_of(tensor: torch.Tensor) -> int:
    return (
        tensor.untyped_storage().nbytes() if tensor.layout is torch.strided else tensor.numel() * tensor.element_size()
    )


def _writes_what_overlaps(node: fx.Node) -> bool:
    """Whether a place that an operation writes is one of several elements, or of another argument too: most refuse
    that, and fakes do not notice."""
    written = written_by(node)
    if not written:
        return False
    args, kwargs = fakes_given(node)
    by_memory: dict[int, list[torch.Tensor]] = {}  # optimisers give an operation all parameters
    for fake in tensors_in((*args, *kwargs.values())):
        by_memory.setdefault(storage_of(fake), []).append(fake)
    return any(
        _overlaps_itself(fake) or any(_lies_elsewhere(fake, other) for other in by_memory.get(storage_of(fake), ()))
        for fake in written
    )


def _overlaps_itself(fake: torch.Tensor) -> bool:
    return fake.layout is torch.strided and any(
        type(stride) is int and stride == 0 and size != 1 for size, stride in zip(fake.shape, fake.stride())
    )


def _lies_elsewhere(written: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether other elements of the same memory are another tensor's, or may be."""
    if other is written:
        return False
    places = [(*tensor.shape, *tensor.stride(), tensor.storage_offset()) for tensor in (written, other)]
    return not all(type(number) is int for place in places for number in place) or places[0] != places[1]


def _can_be_repeated(nodes: list[fx.Node], storage: int, writes: list[int]) -> bool:
    """Whether writing again, with the writes done already, gives what doing it once gives: no operation reads before
    the last write."""
    for position, node in enumerate(nodes[: writes[-1] + 1]):
        args, kwargs = fakes_given(node)
        name = operation_name(node.target)
        if position in writes:
            whole = name not in ("index_put", "scatter", "setitem") or _only_overwrites(name, args, kwargs)
            if (
                name not in OVERWRITES
                or not whole
                or any(storage_of(fake) == storage for fake in tensors_in((*args[1:], *kwargs.values())))
            ):
                return False
        elif any(storage_of(fake) == storage for fake in tensors_in((*args, *kwargs.values()))):
            result = node.meta.get("val")
            # neither reads nor writes, but gives a view
            if not isinstance(result, torch.Tensor) or storage_of(result) != storage:
                return False
    return True


def _only_overwrites(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    if name == "scatter":
        return kwargs.get("reduce") is None and len(args) < 5
    return not (kwargs.get("accumulate") or len(args) > 3)


def _is_lasting(node: fx.Node, owners: list[TensorValue]) -> bool:
    """Whether a write into inputs changes more than their numbers: layout, or the history that autograd keeps."""
    changes_layout = RESIZED in node.meta or operation_name(node.target) in LAYOUT_CHANGES
    return changes_layout or any(_has_history(value.fake) for value in owners)


def _has_history(fake: torch.Tensor) -> bool:
    """Whether autograd keeps how it was computed. What it keeps of a view it keeps of its base.

    A written view that was made without gradients must not be asked: torch raises.
    """
    owner = fake._base if not fake.is_inference() and fake._is_view() else fake
    return owner is not None and owner.requires_grad and not owner.is_leaf
