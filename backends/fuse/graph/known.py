"""Values that depend on nothing but what is known, such as attention masks made of positions: worked out once, while
compiling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.computation import Computation, Result, Weight, real
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values
from framejit.backends.fuse.graph.value import Value
from framejit.backends.may_raise import may_warn

MOST_BYTES: Final = 1 << 13
"""Larger ones are computed in each call, rather than kept: writing them costs a kernel a few microseconds, and they
would take memory for good."""


class KnownValues:
    """Which values are the same in each call, and what they are. `weights` has those that are known besides the numbers
    of the program."""

    def __init__(self, graph: Graph, weights: Mapping[Value, Weight] | None = None) -> None:
        literals = {value: constant.tensor for value, constant in graph.constants.items() if constant.literal}
        self._values: dict[Value, torch.Tensor | Weight | Result] = {**literals, **(weights or {})}
        # what the caller gets, and what is written in place, must be made anew
        self._own = {value.storage for value in graph.returned()} | graph.written()

    def note(self, node: Node) -> None:
        """See whether the results of an operation are the same in each call."""
        results = [*node.returned()]
        if (
            not is_computable(node.operation)
            or node.name.startswith(("empty", "new_empty"))
            or takes_sizes((*node.args, *node.kwargs.values()))
            or any(value not in self._values for value in node.values())
            or may_warn(node.operation, *node.fake_arguments())  # in each call
            or any(value.has_symbolic_sizes for value in results)
            or any(
                value.storage in self._own or value.numel() * value.itemsize > self.most_bytes(node)
                for value in results
            )
        ):
            return
        # of the arguments as they are now: what is known stays so, whatever becomes of the node
        made = Computation(
            node.operation,
            tuple(map(self._operand, node.args)),
            {key: self._operand(value) for key, value in node.kwargs.items()},
        )
        several = isinstance(node.result, (tuple, list))
        for position, value in enumerate(results):
            self._values[value] = Result(made, position if several else None)

    def most_bytes(self, node: Node) -> int:
        """How large a result of an operation may be to be kept."""
        return MOST_BYTES

    def value(self, value: Value) -> torch.Tensor | None:
        """The tensor that a value is in each call, if it owns its storage, with its very sizes and strides; None for
        anything else."""
        known = self._values.get(value)
        if known is None:
            return None
        try:
            with torch.no_grad():
                tensor: torch.Tensor = real(known)
        except Exception:  # it will raise in each call
            return None
        same = (
            tensor.shape == value.shape
            and tensor.stride() == value.strides
            and tensor.dtype == value.dtype
            and not tensor.storage_offset()
        )
        return tensor if same and not tensor.is_conj() and not tensor.is_neg() else None

    def _operand(self, argument: Any) -> Any:
        return map_values(argument, self._values.__getitem__)


def takes_sizes(arguments: Any) -> bool:
    """Whether there are numbers among an operation's arguments that follow from symbolic sizes: others in each call."""
    symbolic = (torch.SymInt, torch.SymFloat)
    return any(
        takes_sizes(argument) if isinstance(argument, (list, tuple)) else isinstance(argument, symbolic)
        for argument in arguments
    )


def is_computable(operation: torch._ops.OpOverload) -> bool:
    """Whether an operation gives the same for the same each time, and does nothing else."""
    return gives_the_same(operation) and not operation._schema.is_mutable


def gives_the_same(operation: torch._ops.OpOverload) -> bool:
    """Whether an operation gives the same for the same each time; it may write into what it is given."""
    return operation.namespace == "aten" and torch.Tag.nondeterministic_seeded not in operation.tags
