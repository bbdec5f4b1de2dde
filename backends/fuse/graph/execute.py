"""Carrying out the operations of a graph, one after the other, by ATen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import map_values
from framejit.backends.fuse.graph.places import place_of_offset
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.plan.plan_functions import count_back, count_exactly
from framejit.backends.fuse.sizes.symbolic_size import concrete
from framejit.symbols.expression import Symbol

RESHAPING: Final = frozenset((torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default))
"""Views that may be possible of a tensor as it was recorded, and of one that lies otherwise not."""


def execute(
    graph: Graph, inputs: Sequence[torch.Tensor], differences: list[str] | None = None,
    sizes: Mapping[Symbol, int] | None = None
) -> tuple[Any, ...]:
    """The results of running a graph without composite operations by ATen, operation by operation, with the metadata
    that a plan of it would give them.

    `differences` is given a line for each operation whose results have other dtypes or sizes than the graph says, or
    are undefined. `sizes`: what symbolic sizes are.
    """
    numbers = sizes or {}
    versions = {
        position: inputs[position]._version for position in graph.counted_writes if not inputs[position].is_inference()
    }
    known: dict[Value, Any] = {value: constant.tensor for value, constant in graph.constants.items()}
    known.update(zip(graph.inputs, inputs, strict=True))
    last = {value: node for node in graph.nodes for value in node.values()}
    returned = {*graph.returned()}
    for node in graph.nodes:
        args = concrete([map_values(arg, known.__getitem__) for arg in node.args], numbers)
        place = place_of_offset(node.operation)
        # the tensor may begin elsewhere than the one that was recorded
        if place is not None and len(args) > place and args[place] is not None:
            args[place] += args[0].storage_offset() - concrete(node.args[0].offset, numbers)
        if node.operation in RESHAPING:
            args[0] = _as_recorded(args[0], node.args[0], numbers)
        kwargs = {key: map_values(arg, known.__getitem__) for key, arg in node.kwargs.items()}
        result = node.operation(*args, **concrete(kwargs, numbers))
        _note(known, node.result, result)
        if differences is not None and not all(fits(known[value], value, numbers) for value in node.results):
            differences.append(f"{node.operation.name()} gives other results than on fakes")
        for value in {*node.values()}:
            if last[value] is node and value not in returned:
                known.pop(value, None)
    # as autograd counts the writes of the program, whatever they have become here
    for position, before in versions.items():
        surplus = inputs[position]._version - before - graph.counted_writes[position]
        if surplus > 0:
            count_back([inputs[position]], [surplus])
        for _ in range(-surplus):
            torch._C._increment_version([inputs[position]])
    count_exactly([known[graph.outputs[position]] for position in graph.versions], [*graph.versions.values()])
    constants = {constant.tensor.untyped_storage()._cdata for constant in graph.constants.values()}
    return tuple(
        _own(known[output], constants) if isinstance(output, Value) else concrete(output, numbers)
        for output in graph.outputs
    )


def _as_recorded(tensor: torch.Tensor, value: Value, numbers: Mapping[Symbol, int]) -> torch.Tensor:
    """The tensor, or a copy that lies as the graph says. Not all operations lay out results as on fakes."""
    strides = concrete(value.strides, numbers)
    if all(a == b or size == 1 for a, b, size in zip(tensor.stride(), strides, tensor.shape)):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _own(result: torch.Tensor, constants: set[int]) -> torch.Tensor:
    """A result that is not a constant of the graph, which later runs need as it is."""
    return result.clone() if constants and result.untyped_storage()._cdata in constants else result


def fits(result: Any, value: Value, numbers: Mapping[Symbol, int]) -> bool:
    """Whether a result of an operation has the dtype and the sizes that the graph says."""
    return (
        isinstance(result, torch.Tensor)
        and result.dtype == value.dtype
        and tuple(result.shape) == concrete(value.shape, numbers)
    )


def _note(known: dict[Value, Any], values: Any, results: Any) -> None:
    if isinstance(values, Value):
        known[values] = results
    elif isinstance(values, (tuple, list)):
        for value, result in zip(values, results, strict=True):
            _note(known, value, result)
