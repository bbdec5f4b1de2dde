"""Tensors of the graph that stand for one of several which the program has there, as data decides."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import torch

from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of
from framejit.values.base import Value
from framejit.values.objects.exception_values import NULL
from framejit.values.tensors.copies import Copy
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.interpreter.frame import Frame
    from framejit.signals import Unsupported

_MOST_HELD: Final = 2000
"""How many values are looked through for one that holds a tensor."""


class Choice(NamedTuple):
    """What a tensor may stand for: another tensor."""

    way: Hashable
    """What has to happen for that."""
    tensor: TensorValue
    is_new: bool
    """Whether it was made on that way, alone in memory of its own, so that nothing else can lead to it."""


class ChosenTensors:
    """The tensors that one place of the program leaves for others. Where nothing else holds these others, nor a view of
    them, a chosen one is as good as they are; elsewhere it is a copy (`Copy`)."""

    def __init__(self, frame: Frame, seq: int, refusal: Unsupported, kind: type[Copy] = Copy) -> None:
        self.frame, self.seq, self.refusal, self.kind = frame, seq, refusal, kind
        self._made: list[TensorValue] = []
        self._candidates: dict[int, list[TensorValue]] = {}
        self._led_to: dict[tuple[Hashable, int], list[TensorValue]] = {}
        """By way and storage: what was chosen from tensors in it."""
        self._copied: list[TensorValue] = []
        """What was chosen from copies."""

    def add(self, made: TensorValue, choices: Iterable[Choice]) -> None:
        """Note what `made` may stand for."""
        choices = [*choices]
        of = {
            storage
            for _, value, is_new in choices
            if not is_new
            for storage in (value.copy_of.of if value.copy_of is not None else {storage_of(value.fake)})
        }
        self._candidates[id(made)] = [value for _, value, is_new in choices if not is_new]
        if of:
            made.copy_of = self._copy(made, of)
        for place in dict.fromkeys((way, storage_of(value.fake)) for way, value, _ in choices):
            self._led_to.setdefault(place, []).append(made)
        if any(value.copy_of is not None for _, value, _ in choices):
            self._copied.append(made)
        self._made.append(made)

    def _copy(self, made: TensorValue, of: set[int]) -> Copy:
        copy = self.kind(self.frame.capture, self.seq, self.refusal, of)
        copy.candidates = self._candidates[id(made)]
        return copy

    def check(self, left: list[Value]) -> None:
        """Find the copies; `left` is what the frame holds by now. What stands for a tensor that was there before is as
        good as that tensor where nothing else holds it, nor a view of it: then it may leave captured code as if it had
        been made by the operation that chose it."""
        for (_, storage), made in self._led_to.items():
            if len(made) > 1:  # which share memory if that way is taken
                for value in made:
                    value.copy_of = value.copy_of or self._copy(value, set())
                    value.copy_of.of.add(storage)
                self._copied += made
        copies = [value for value in self._made if value.copy_of is not None]
        if not copies:
            return
        capture, graph = self.frame.capture, self.frame.capture.graph
        others = {storage_of(value.fake) for value in graph.inputs} | self._of_views()
        held = self._held(left)
        hides = capture.weak_references or capture.generators or held is None
        for copy in copies:
            assert copy.copy_of is not None
            if hides or copy in self._copied or not copy.copy_of.of.isdisjoint({*others, *(held or ())}):
                graph.copies.append(copy.copy_of)
            else:
                copy.copy_of = None

    def _of_views(self) -> set[int]:
        """The storages of tensors that are not all of their memory."""
        return {
            storage_of(fake)
            for node in self.frame.capture.graph.graph.nodes
            for fake in tensors_in((node.meta.get("val"),))
            if fake.layout == torch.strided and not is_whole(fake)
        }

    def _held(self, left: list[Value]) -> set[int] | None:
        """The storages of the tensors that are held by now; None if there is too much to look through."""
        frame = self.frame
        waiting = [*left, *frame.cells.values(), *frame.capture.effects.kept()]
        for caller in frame.chain()[1:]:
            waiting += caller.held()
        seen, found = set[int](), set[int]()
        while waiting:
            value = waiting.pop()
            if id(value) in seen or value is NULL:
                continue
            seen.add(id(value))
            if len(seen) > _MOST_HELD:
                return None
            if isinstance(value, TensorValue):
                found.add(storage_of(value.fake))
            waiting += value.children()
        return found


def is_whole(fake: torch.Tensor) -> bool:
    """Whether a tensor has all of its memory, as one that an operation has made."""
    size = fake.untyped_storage().nbytes()
    return not fake._is_view() and not fake.storage_offset() and size == fake.numel() * fake.element_size()
