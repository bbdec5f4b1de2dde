"""Nodes: one ATen operation each, with its arguments, its results, and what it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.fuse.graph.origin import Origin
from framejit.backends.fuse.graph.value import Value
from framejit.backends.own_operations import NAMESPACE

if TYPE_CHECKING:
    from framejit.backends.fuse.graph.graph import Graph

Autocast = tuple[tuple[str, torch.dtype], ...]
"""Devices for which autocast is on, and to which dtype it converts."""

TRAINING: Final = 5
"""The position of `training` among the arguments of a batch normalisation."""
STATISTICS: Final = (3, 4)
BATCH_NORMS: Final = frozenset(
    ("aten::batch_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm")
)
"""Operations that in training write into running statistics without saying so in their schema."""


class Node:
    """An operation. Arguments are as the operation takes them, with Values for tensors, in lists and tuples too.

    `result`: what it returns, with Values for tensors. Those that it makes are `results`; others it passes on (an
    operation in place returns what it wrote). `writes`: the arguments that it writes into. `parts`: for a composite
    operation the graph of what it consists of, for one that runs graphs these; operations in there may use the values
    that are known here.
    """

    __slots__ = ("operation", "args", "kwargs", "result", "results", "writes", "origin", "autocast", "parts", "ordered")

    def __init__(
        self,
        operation: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        origin: Origin,
        *,
        autocast: Autocast = (),
        parts: tuple[Graph, ...] = (),
    ) -> None:
        self.operation, self.args, self.kwargs, self.result, self.origin = operation, args, kwargs, result, origin
        self.autocast = autocast
        """What the program's autocast does to its parts, where the operation itself is none that autocast knows."""
        self.parts = parts
        given = dict.fromkeys(self.values())
        self.results = tuple(value for value in dict.fromkeys(values_in((result,))) if value not in given)
        for value in self.results:
            value.maker = self
        for value in given:
            value.users[self] = None
        self.writes = self._written(given)
        self.ordered: bool = is_ordered(operation, args, kwargs) or any(
            node.ordered for part in parts for node in part.nodes
        )
        """Whether it must run where it stands among others that are: it draws random numbers, or does what its schema
        doesn't tell."""

    @property
    def name(self) -> str:
        return self.operation._opname

    def values(self) -> Iterator[Value]:
        """The values among its arguments, those in lists too."""
        return values_in((*self.args, *self.kwargs.values()))

    def returned(self) -> Iterator[Value]:
        """The values that it returns, those that it passes on too."""
        return values_in((self.result,))

    def fake_arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The node's arguments with fakes for values."""
        return tuple([map_values(arg, _fake) for arg in self.args]), {
            key: map_values(arg, _fake) for key, arg in self.kwargs.items()
        }

    def argument(self, name: str, default: Any = None) -> Any:
        """The argument of this name."""
        return argument_of(self.operation, self.args, self.kwargs, name, default)

    def replace(self, old: Value, new: Value) -> None:
        """Take another value wherever it takes `old`, or passes it on."""

        def instead(value: Value) -> Value:
            return new if value is old else value

        self.args = tuple([map_values(arg, instead) for arg in self.args])
        self.kwargs = {key: map_values(arg, instead) for key, arg in self.kwargs.items()}
        self.result = map_values(self.result, instead)
        self.writes = tuple(dict.fromkeys(map(instead, self.writes)))
        for part in self.parts:
            part.outputs = [map_values(output, instead) for output in part.outputs]
        del old.users[self]
        new.users[self] = None

    def detach(self) -> None:
        """Use nothing any more: it is no part of a graph from here on."""
        for value in dict.fromkeys(self.values()):
            value.users.pop(self, None)
        for part in self.parts:
            for node in part.nodes:
                node.detach()

    def _written(self, given: Mapping[Value, None]) -> tuple[Value, ...]:
        found = [*written_arguments(self.operation, self.args, self.kwargs)]
        inside = {value.storage for part in self.parts for node in part.nodes for value in node.writes}
        found += [value for value in given if value.storage in inside]
        return tuple(dict.fromkeys(found))


def _fake(value: Value) -> torch.Tensor:
    return value.fake


def values_in(tree: Any) -> Iterator[Value]:
    """The values in tuples and lists."""
    for value in tree:
        if type(value) is Value:
            yield value
        elif isinstance(value, (tuple, list)):
            yield from values_in(value)


def map_values(tree: Any, function: Callable[[Value], Any]) -> Any:
    """The structure of tuples and lists with what a function gives for its values."""
    if type(tree) is Value:
        return function(tree)
    if type(tree) in (tuple, list):
        return type(tree)([map_values(item, function) for item in tree])
    return tree


def written_arguments(
    operation: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[Value]:
    """The arguments that an operation writes into: by its schema, or for running statistics in training without
    that."""
    if operation._schema.is_mutable:
        for position, argument in enumerate(operation._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = args[position] if position < len(args) else kwargs.get(argument.name)
                yield from values_in((value,))
    elif operation._schema.name in BATCH_NORMS and args[TRAINING]:
        yield from values_in([args[position] for position in STATISTICS])


def is_ordered(operation: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation draws random numbers, or does what the schema doesn't tell."""
    name = operation._opname
    if name == "scaled_dot_product_attention":
        return bool(argument_of(operation, args, kwargs, "dropout_p", 0.0))
    return (
        torch.Tag.nondeterministic_seeded in operation.tags
        or operation.namespace not in ("aten", "mkldnn", "mkl", NAMESPACE)
        or name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    )


def argument_of(
    operation: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], name: str, default: Any
) -> Any:
    """The argument of this name."""
    for position, argument in enumerate(operation._schema.arguments):
        if argument.name == name:
            return args[position] if position < len(args) else kwargs.get(name, default)
    return default
