"""Frozen weights: what a graph computes from nothing but them is computed once, while it is compiled.

Such are weights in another dtype (autocast converts them at each call) or in channels-last memory, weights with a parametrisation, and batch norms
(frozen_norms.py). A view of a weight costs nothing and stays a view. What is kept takes memory for as long as the compiled graph lives: no more
than twice that of the floating weights it was made of, and no more than that of weights of integers, which are small for a reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import fx

from framejit.backends.frozen_weights import FrozenWeight, frozen
from framejit.backends.fuse.lowering.constants import MOST_BYTES, Constants
from framejit.backends.fuse.lowering.frozen_norms import fold_norms
from framejit.backends.fuse.trace import Call, Trace, storage_of, tensors_in, written_arguments


def fold(traced: Trace, gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> None:
    """Take out of a trace what depends on frozen weights alone: its values become constants of the trace, and the weights are marked as folded."""
    marks = [frozen(node) for node in gm.graph.nodes if node.op == "placeholder"]
    written = {storage_of(fake) for call in traced.calls if call.func._schema.is_mutable for fake in written_arguments(call)}
    weights = {
        id(fake): (example.detach(), mark) for fake, example, mark in zip(traced.inputs, example_inputs, marks) if mark and storage_of(fake) not in written
    }
    if weights:
        with _plainly():
            known = FrozenValues(traced, weights)
            for call in traced.calls:
                known.note(call)
            traced.folded_norms = fold_norms(traced, known)
            _replace(traced, known)


class FrozenValues(Constants):
    """The values of what depends on frozen weights, and which weights these are."""

    def __init__(self, traced: Trace, weights: dict[int, tuple[torch.Tensor, FrozenWeight]]) -> None:
        super().__init__(traced, {key: value for key, (value, _) in weights.items()})
        self.weights = weights
        self.added: list[torch.Tensor] = []
        """Fakes that no operation of the trace makes."""
        self._memory = {weight.untyped_storage()._cdata for weight, _ in weights.values()}
        self._made_of: dict[int, frozenset[int]] = {key: frozenset((key,)) for key in weights}

    def note(self, call: Call) -> None:
        super().note(call)
        made_of = self._weights_of(call)
        for fake in call.results():
            if id(fake) in self._values:
                self._made_of[id(fake)] = made_of

    def most_bytes(self, call: Call) -> int:
        weights = [self.weights[key][0] for key in self._weights_of(call)]
        return max(MOST_BYTES, sum(weight.numel() * weight.itemsize * (2 if weight.is_floating_point() else 1) for weight in weights))

    def knows(self, fake: torch.Tensor) -> bool:
        """Whether the value of a fake is the same in each call."""
        return id(fake) in self._values

    def number(self, fake: torch.Tensor) -> torch.Tensor:
        """The value of a fake that is known; it may be a view of a weight."""
        return self._values[id(fake)]()

    def is_view(self, fake: torch.Tensor) -> bool:
        """Whether the value of a fake lies in a weight's own memory."""
        return self.number(fake).untyped_storage()._cdata in self._memory

    def add(self, fake: torch.Tensor, value: torch.Tensor, made_of: Sequence[torch.Tensor]) -> None:
        """A value that was computed from those of other fakes."""
        self.added.append(fake)
        self._values[id(fake)] = lambda: value
        self._made_of[id(fake)] = self._weights_behind(made_of)

    def folded(self, call: Call) -> list[torch.Tensor] | None:
        """The values of an operation's results if they were computed from weights and have memory of their own, else None."""
        given = {storage_of(fake) for fake in call.tensors()}
        results = [*call.results()]
        if not self._weights_of(call) or any(storage_of(fake) in given for fake in results):
            return None
        values = [value for fake in results if (value := self.value(fake)) is not None and value.untyped_storage()._cdata not in self._memory]
        return values if len(values) == len(results) else None

    def mark(self, fake: torch.Tensor) -> None:
        """Have the content guarded that the value of a fake was computed from."""
        for key in self._made_of[id(fake)]:
            self.weights[key][1].folded = True

    def _weights_of(self, call: Call) -> frozenset[int]:
        return self._weights_behind([*call.tensors()])

    def _weights_behind(self, fakes: Sequence[torch.Tensor]) -> frozenset[int]:
        return frozenset().union(*(self._made_of.get(id(fake), ()) for fake in fakes))


@contextmanager
def _plainly() -> Iterator[None]:
    """Without autograd, inference tensors and autocast: what is computed here outlives the call, and autocast is in the trace already."""
    with ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C._DisableAutocast())
        yield


def _replace(traced: Trace, known: FrozenValues) -> None:
    """Have constants for values that are needed, and leave out what only these needed. Goes through the operations backwards."""
    needed = {id(fake) for fake in tensors_in(traced.outputs)}
    kept: list[Call] = []
    for call in reversed(traced.calls):
        results = [*call.results()]
        wanted = [fake for fake in results if id(fake) in needed]
        if results and all(map(known.knows, results)):
            if not wanted:
                continue
            values = known.folded(call)
            if values is not None:
                for fake, value in zip(results, values):
                    _keep(traced, known, fake, value)
                continue
        kept.append(call)
        needed.update(map(id, call.tensors()))
    traced.calls = kept[::-1]
    for fake in known.added:
        if id(fake) in needed:
            _keep(traced, known, fake, known.number(fake))


def _keep(traced: Trace, known: FrozenValues, fake: torch.Tensor, value: torch.Tensor) -> None:
    """Have a value as a constant of the trace."""
    traced.constants[id(fake)] = value
    traced.folded.append(fake)
    known.mark(fake)
