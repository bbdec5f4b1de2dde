"""What was computed from frozen weights, in a record of a plan: how, so that it is done again to the weights at hand,
and what came of it.

The passes decide what is computed by the graph, and by a few things that only the weights' content tells: whether a
batch norm's are finite. Where the weights at hand give another answer, or something that lies otherwise, the plan is
not for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.fuse.cache.kernel_record import BadRecord
from framejit.backends.fuse.graph.computation import Computation, Result, behind, real, weights_of
from framejit.late_dataclass import dataclass

if TYPE_CHECKING:
    from framejit.backends.fuse.graph.graph import Graph

_ALIGNMENT: Final = 16


@dataclass(frozen=True)
class Folding:
    """The computations on frozen weights that passes did while a graph was compiled: constants that stand in the graph,
    and batch norms that went into weights."""

    constants: tuple[Result, ...] = ()
    norms: tuple[Computation, ...] = ()
    """What would take batch norms into weights. Those that give nothing took none."""

    def tensors(self) -> list[torch.Tensor]:
        """The values of the constants, in order."""
        return [real(constant) for constant in self.constants]

    def bytes(self) -> int:
        """The memory that the constants take."""
        return sum(map(_bytes, self.constants))

    def folded_norms(self) -> int:
        """How many batch norms went into weights."""
        return sum(norm.outcome() is not None for norm in self.norms)

    def weights(self) -> set[int]:
        """The positions of the weights whose content is in the constants."""
        return weights_of(*(constant.computation for constant in self.constants))


def folding_of(graph: Graph) -> Folding:
    """The computations on frozen weights that passes left in a graph."""
    return Folding(
        tuple(constant.made for constant in graph.constants.values() if constant.made is not None), tuple(graph.norms)
    )


def written_folding(
    folding: Folding, name_of: Callable[[Callable[..., Any]], str], value: Callable[[Any, dict[Computation, int]], Any]
) -> list[Any]:
    """A folding as JSON has it. `value` writes arguments, given the numbers of the computations."""
    steps = behind(*(constant.computation for constant in folding.constants), *folding.norms)
    numbers = {step: number for number, step in enumerate(steps)}
    made = [[name_of(step.function), value(step.args, numbers), value(step.kwargs, numbers)] for step in steps]
    constants = [
        [numbers[constant.computation], constant.position, value(_facts(real(constant)), numbers)]
        for constant in folding.constants
    ]
    return [made, constants, [[numbers[norm], norm.outcome() is not None] for norm in folding.norms]]


def read_folding(
    data: Any, functions: dict[str, Callable[..., Any]], value: Callable[[Any, Sequence[Computation]], Any],
    weights: Sequence[torch.Tensor]
) -> Folding:
    """Do again the computations that `written_folding` wrote down. `value` reads arguments, given the computations so
    far; `weights` are all that are frozen.

    Raises BadRecord where something else comes of it than did, and whatever the computations raise.
    """
    made, constants, norms = data
    steps: list[Computation] = []
    for name, args, kwargs in made:
        steps.append(Computation(functions[name], tuple(value(args, steps)), value(kwargs, steps)))
    folding = Folding(
        tuple(Result(steps[number], position) for number, position, _ in constants),
        tuple(steps[number] for number, _ in norms),
    )
    if [norm.outcome() is not None for norm in folding.norms] != [is_folded for _, is_folded in norms]:
        raise BadRecord("batch norms are not finite that were, or the other way round")
    memory = {weight.untyped_storage()._cdata for weight in weights}
    for tensor, (_, _, facts) in zip(folding.tensors(), constants):
        if (
            type(tensor) is not torch.Tensor
            or _facts(tensor) != value(facts, steps)
            or tensor.layout is torch.strided and tensor.untyped_storage()._cdata in memory
        ):
            raise BadRecord("what is computed from weights lies otherwise than it did")
    return folding


def _bytes(constant: Result) -> int:
    tensor: torch.Tensor = real(constant)
    if tensor.layout is not torch.strided:  # packed by a library, which reserves more than it writes to
        tensor = real(constant.computation.args[0])
    return tensor.numel() * tensor.itemsize


def _facts(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What plans rely on in a constant besides its content."""
    if tensor.layout is not torch.strided:  # packed by a library, and opaque
        return tuple(tensor.shape), str(tensor.layout), tensor.dtype, tensor.device
    layout = tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device
    return (*layout, tensor.data_ptr() % _ALIGNMENT == 0, tensor.is_conj() or tensor.is_neg())
