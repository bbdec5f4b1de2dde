"""Values that depend on nothing but what is known, such as attention masks made of positions: worked out once, while compiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value

MOST_BYTES: Final = 1 << 13
"""Larger ones are computed in each call, rather than kept: writing them costs a kernel a few microseconds, and they would take memory for good."""


class KnownValues:
    """Which values are the same in each call, and what they are. `given` has those that are known besides the numbers of the program."""

    def __init__(self, graph: Graph, given: Mapping[Value, torch.Tensor] | None = None) -> None:
        literals = {value: constant.tensor for value, constant in graph.constants.items() if constant.literal}
        self._values: dict[Value, Callable[[], torch.Tensor]] = {value: _given(tensor) for value, tensor in {**literals, **(given or {})}.items()}
        # what the caller gets, and what is written in place, must be made anew
        self._own = {value.storage for value in graph.returned()} | graph.written()

    def note(self, node: Node) -> None:
        """See whether the results of an operation are the same in each call."""
        results = [*node.returned()]
        if (
            node.operation._schema.is_mutable
            or node.operation.namespace != "aten"
            or torch.Tag.nondeterministic_seeded in node.operation.tags
            or node.name.startswith(("empty", "new_empty"))
            or any(value not in self._values for value in node.values())
            or any(value.has_open_sizes for value in results)
            or any(value.storage in self._own or value.numel() * value.itemsize > self.most_bytes(node) for value in results)
        ):
            return
        operation, args, kwargs = node.operation, node.args, node.kwargs  # as they are now: what is known stays so, whatever becomes of the node
        compute = _once(lambda: operation(*self._real(args), **{key: self._real(value) for key, value in kwargs.items()}))
        several = isinstance(node.result, (tuple, list))
        for position, value in enumerate(results):
            self._values[value] = _part(compute, position) if several else compute

    def most_bytes(self, node: Node) -> int:
        """How large a result of an operation may be to be kept."""
        return MOST_BYTES

    def value(self, value: Value) -> torch.Tensor | None:
        """What a value is that is known and owns its storage, with its very sizes and strides; None for anything else."""
        compute = self._values.get(value)
        if compute is None:
            return None
        try:
            with torch.no_grad():
                tensor = compute()
        except Exception:  # it will raise in each call
            return None
        same = tensor.shape == value.shape and tensor.stride() == value.strides and tensor.dtype == value.dtype and not tensor.storage_offset()
        return tensor if same and not tensor.is_conj() and not tensor.is_neg() else None

    def _real(self, value: Any) -> Any:
        if isinstance(value, Value):
            return self._values[value]()
        return type(value)(map(self._real, value)) if type(value) in (list, tuple) else value


def _given(value: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: value


def _part(compute: Callable[[], Any], position: int) -> Callable[[], torch.Tensor]:
    return lambda: compute()[position]


def _once(compute: Callable[[], Any]) -> Callable[[], Any]:
    known: list[Any] = []

    def result() -> Any:
        if not known:
            known.append(compute())
        return known[0]

    return result
