"""A graph that is run again, as ATen, because gradients of gradients were asked for: autograd then sees each operation.

It must give what the first run gave. So a call notes where the random number generators were, and holds the memory of
the inputs; what the graph writes into inputs it writes into copies, where no result that has gradients is made of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import BATCH_NORMS, STATISTICS, TRAINING, Node, values_in
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.thread_state import restore, restored_thread_state
from framejit.backends.fuse.training.joint import Recorded
from framejit.backends.fuse.training.recorder import is_of_backward

RandomState = list[tuple[torch.Generator, torch.Tensor]]
AGAIN: Final = "framejit runs this graph as ATen from now on: repeat the step"


class Call:
    """One run of a graph, as its nodes of autograd know it."""

    __slots__ = ("inputs", "versions", "random")

    def __init__(
        self, inputs: Sequence[torch.Tensor], differentiable: Sequence[bool], random: RandomState | None
    ) -> None:
        """To be made with gradients on. `differentiable`: whether gradients go to an input. `random`: the generators,
        and where they were before the run."""
        # autograd holds leaves anyway
        self.inputs = [
            (tensor if tensor.grad_fn is None else _Alias.apply(tensor)) if has_gradient else tensor.detach()
            for tensor, has_gradient in zip(inputs, differentiable)
        ]
        """What stands for the inputs if the graph is run again. Their memory lives as long as what is kept for the
        backward; tensors that eager's autograd lets go of may go."""
        self.versions = _versions(inputs)
        self.random = random


class SecondRun:
    """What may be done to run a captured graph again."""

    def __init__(self, eager: Callable[..., tuple[Any, ...]], recorded: Recorded, torch_state: Any) -> None:
        """`torch_state`: torch's, when the graph is run."""
        self._eager, self._torch_state = eager, torch_state
        nodes = [node for node in recorded.graph.nodes if not is_of_backward(node)]
        ordered = [node for node in nodes if node.ordered]
        self._is_known = all(node.operation.namespace == "aten" for node in ordered)
        """Whether its operations do but what their schemas say, and draw random numbers."""
        devices = {value.device for node in ordered for value in (*node.results, *node.writes)}
        self._generators = [_generator_of(device) for device in devices]
        """What the graph may draw numbers from."""
        known = recorded.recorder.known
        roots = [known(root).storage for root in recorded.results.roots if isinstance(root, torch.Tensor)]
        lead_to_results = _lead_to(roots, nodes)
        inputs = [known(fake).storage for fake in recorded.inputs]
        self._written = frozenset(recorded.written)
        self._lead_to_results = {place for place, storage in enumerate(inputs) if storage in lead_to_results}

    def random_state(self) -> RandomState | None:
        """Where the random number generators are that the graph may draw from; None if it draws from none. To be asked
        before the first run."""
        if not self._generators:
            return None
        return [(generator, generator.get_state()) for generator in self._generators]

    def of(self, call: Call) -> tuple[list[torch.Tensor], tuple[Any, ...]]:
        """The inputs of the second run, and the graph's outputs. Raises RuntimeError where it would not be the same as
        the first."""
        if not self._is_known or self._written & self._lead_to_results:
            raise RuntimeError(
                "gradients of gradients were asked for, and the graph they lead through can't be run again to find "
                f"them: it changes what it looks at. {AGAIN}"
            )
        now = _versions(call.inputs)
        if any(call.versions[position] != now[position] for position in self._lead_to_results):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                "input of a compiled graph, which is run again because gradients of gradients were asked for"
            )
        # views of inputs have neither hooks of the program's nor, to us, what led to them
        inputs = [
            tensor.view_as(tensor) if tensor.requires_grad else tensor.clone() if position in self._written else tensor
            for position, tensor in enumerate(call.inputs)
        ]
        with restored_thread_state(), _drawing_from(call.random or []):
            restore(self._torch_state)
            return inputs, self._eager(*inputs)


class _Alias(torch.autograd.Function):
    """A tensor over the memory of another: for autograd made of that tensor, but not holding it."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # inference tensors have none
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


def _generator_of(device: torch.device) -> torch.Generator:
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


def _lead_to(storages: Sequence[Storage], nodes: Sequence[Node]) -> set[Storage]:
    """The storages whose content may have part in that of these."""
    found = {*storages}
    for node in reversed(nodes):
        if any(value.storage in found for value in (*node.results, *node.writes)):
            found.update(value.storage for value in _looked_at(node))
    return found


def _looked_at(node: Node) -> Iterator[Value]:
    if node.operation._schema.name in BATCH_NORMS and node.args[TRAINING]:
        yield from values_in([arg for position, arg in enumerate(node.args) if position not in STATISTICS])
        yield from values_in(node.kwargs.values())
    else:
        yield from node.values()


@contextmanager
def _drawing_from(random: RandomState) -> Iterator[None]:
    """Draws the numbers once more that were drawn from here on; afterwards the generators are where they are now."""
    now = [generator.get_state() for generator, _ in random]
    for generator, state in random:
        generator.set_state(state)
    try:
        yield
    finally:
        for (generator, _), state in zip(random, now):
            generator.set_state(state)
