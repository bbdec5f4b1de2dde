"""A graph that is run again, as ATen, because gradients of gradients or of a whole batch of gradients were asked for:
autograd then sees each operation.

It must give what the first run gave. So a call notes where the random number generators were, from which keys and
numbers are drawn once more (`random_numbers/drawn_again.py`), and holds the memory of the inputs, of those that the
graph writes into copies that were made before, where results with gradients are made of what they held. The second run
writes into copies of these in its turn. The program may write into inputs, too, before a backward. Where eager keeps
them that is an error in either; the others are copied for as long as it is likely that the graph is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from framejit.backends.fuse.graph.alias import alias
from framejit.backends.fuse.random_numbers.drawn_again import DrawnAgain
from framejit.backends.fuse.random_numbers.generators import drawing_in_vain, generator_of
from framejit.backends.fuse.thread_state import restore, restored_thread_state
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from torch.autograd.graph import GradientEdge

    from framejit.backends.draws.program_generators import ProgramGenerator
    from framejit.backends.fuse.autograd_nodes.node_watch import Watch
    from framejit.backends.fuse.autograd_nodes.segments import Segment
    from framejit.backends.fuse.autograd_nodes.through_results import Shown
    from framejit.backends.fuse.autograd_nodes.whole_backward import WholeRun

RandomState = list[tuple[Any, Any]]
"""Generators, and where they are."""
Contents = Mapping[int, torch.Tensor]
"""What inputs held before the graph, or the program behind it, wrote into them, by their positions."""
COPIED_BYTES: Final = 1 << 26
"""The most that is copied of inputs which the program might write into."""


class Call:
    """One run of a graph, as its nodes of autograd know it."""

    __slots__ = ("inputs", "versions", "random", "watch", "whole", "again", "held", "shown")

    def __init__(
        self, inputs: Sequence[torch.Tensor], differentiable: Sequence[bool], random: RandomState | None,
        contents: Contents
    ) -> None:
        """To be made with gradients on. `differentiable`: whether gradients go to an input. `random`: the generators,
        and where they were before the run. `contents`: as `SecondRun.contents` gives them."""
        self.inputs = []
        for position, (tensor, has_gradient) in enumerate(zip(inputs, differentiable)):
            # autograd holds leaves anyway; those that were written, by code that autograd did not see, are others now
            if has_gradient and tensor.grad_fn is None and position not in contents:
                self.inputs.append(tensor)
                continue
            memory = contents[position] if position in contents else tensor.detach()
            self.inputs.append(alias(tensor, memory) if has_gradient else memory)
        """What stands for the inputs if the graph is run again. Their memory lives as long as what is kept for the
        backward; tensors that eager's autograd lets go of may go."""
        self.versions = _versions(self.inputs)
        self.random = random
        self.watch: Watch | None = None
        """Tells whether gradients are asked for at the nodes behind the loss, where one node may run the backward of
        all."""
        self.whole: WholeRun | None = None
        """The last such backward."""
        self.again: tuple[int, list[Segment], dict[int, GradientEdge], list[torch.Tensor]] | None = None
        """Of the backward that goes on, by its number: what the graph gave that was run again for it, and what it was
        run with."""
        self.held: list[GradientEdge] = []
        """What keeps the nodes of these segments: of a torch.autograd.Function's, in a torch before 2.13, whoever knows
        it as an object of Python's has none once no tensor and no other node leads to it."""
        self.shown: dict[int, Shown] = {}
        """The results, by their numbers among what crosses between segments; none of a graph that writes into inputs,
        which are results then."""

    def forget_again(self) -> None:
        """Lets go of that."""
        self.again = None
        self.held = []


@dataclass(eq=False)
class SecondRun:
    """How a captured graph is run again for gradients of gradients: the state to put back, and the copies of inputs to
    be kept for it."""

    eager: Callable[..., tuple[Any, ...]]
    torch_state: tuple[Any, ...]
    """Torch's, when the graph is run."""
    devices: tuple[torch.device, ...]
    """The devices of what the graph may draw numbers for."""
    written: frozenset[int]
    """The positions of inputs that are written."""
    looked_at: frozenset[int]
    """The inputs whose content results with gradients are made of."""
    draws: int = 0
    """How many draws of the graph kernels make."""
    unkept: frozenset[int] = frozenset()
    """Inputs among these that eager's autograd neither keeps nor adds gradients up for, of a graph whose segments are
    joined."""
    of_program: tuple[ProgramGenerator, ...] = ()
    """The generators that the graph draws from and torch has not made."""

    def __post_init__(self) -> None:
        self._generators: list[Any] = [*map(generator_of, self.devices), *self.of_program]
        self._copied = sorted(self.written & self.looked_at)

    def random_state(self) -> RandomState | None:
        """Where the random number generators are that the graph may draw from; None if it draws from none. To be asked
        before the first run."""
        if not self._generators:
            return None
        return [(generator, generator.get_state()) for generator in self._generators]

    def contents(self, inputs: Sequence[torch.Tensor], in_doubt: bool) -> Contents:
        """Copies of the inputs that the graph looks at and writes into, or that the program might write into where it
        is `in_doubt` from which results it goes backwards. To be asked before the first run."""
        found = {position: _copy(inputs[position]) for position in self._copied}
        if in_doubt and sum(inputs[position].nbytes for position in self.unkept) <= COPIED_BYTES:
            found.update((position, _copy(inputs[position])) for position in self.unkept)
        return found

    def inputs(self, call: Call) -> list[torch.Tensor]:
        """The inputs of the second run. Raises RuntimeError where they were written since the first."""
        if self.is_spoiled(call):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                "input of a compiled graph, which is run again because gradients of gradients or batches of gradients "
                "were asked for"
            )
        # views of inputs have neither hooks of the program's nor, to us, what led to them
        inputs = []
        for position, tensor in enumerate(call.inputs):
            if position in self.written:
                memory = _copy(tensor)
                inputs.append(alias(tensor, memory) if tensor.requires_grad else memory)
            else:
                inputs.append(tensor.view_as(tensor) if tensor.requires_grad else tensor)
        return inputs

    def is_spoiled(self, call: Call) -> bool:
        """Whether inputs were written since the first run."""
        now = _versions(call.inputs)
        return any(call.versions[position] != now[position] for position in self.looked_at)

    def outputs(self, call: Call, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The graph's outputs, of the second run's inputs."""
        with restored_thread_state(), _drawing_from(call.random or []):
            restore(self.torch_state)
            outputs, drawn = self.by_aten(inputs)
        if drawn != self.draws:
            raise RuntimeError(
                f"a compiled graph draws random numbers {drawn} times now that it is run again because gradients of "
                f"gradients or batches of gradients were asked for, and drew them {self.draws} times before"
            )
        return outputs

    def by_aten(self, inputs: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], int]:
        """The graph's outputs, of ATen's operations and the random numbers that its kernels make; and how many of its
        draws there were."""
        if not self.draws:
            return self.eager(*inputs), 0
        with DrawnAgain() as again:
            outputs = self.eager(*inputs)
        return outputs, again.draws


@contextmanager
def outside_of_transforms() -> Iterator[None]:
    """In the block no transform of torch's is at work in the thread: a graph that vmap asks for the gradients of was
    run outside of it, and may draw random numbers and call functions that vmap does not take."""
    depth = torch._C._vmapmode_increment_nesting()
    for _ in range(depth):
        torch._C._vmapmode_decrement_nesting()
    try:
        with temporarily_clear_interpreter_stack():
            yield
    finally:
        for _ in range(depth - 1):
            torch._C._vmapmode_increment_nesting()


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that lies in memory of its own as this one does."""
    with torch.no_grad():
        return torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        ).copy_(tensor)


def _versions(tensors: Sequence[torch.Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors]
    except RuntimeError:  # inference tensors have none
        return [0 if tensor.is_inference() else tensor._version for tensor in tensors]


@contextmanager
def _drawing_from(random: RandomState) -> Iterator[None]:
    """Draws the numbers once more that were drawn from here on; afterwards the generators are where they are now."""
    with drawing_in_vain([generator for generator, _ in random]):
        for generator, state in random:
            generator.set_state(state)
        yield
