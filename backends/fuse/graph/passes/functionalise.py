"""Writes into tensors give way to operations that make new ones; only inputs and attributes that the program sees are
written, once, at the end.

After each write a storage has a new content, and views of it are made anew from that when something looks at them.
Functionalisation as torch has it (torch/csrc, FunctionalTensorWrapper) does the same while operations run; here the
recorded graph is rewritten.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.origin import Origin
from framejit.backends.fuse.graph.overlaps import overlaps
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.random_numbers.bernoulli_like import BERNOULLI_LIKE
from framejit.backends.fuse.random_numbers.drawings import fills_memory
from framejit.fakes.light_torch import light


def functionalise(graph: Graph, context: Context) -> Graph:
    """Leave no writes but those into inputs and constants at the end. Raises NotFusable for a write that has no such
    form."""
    if graph.written():
        _Functionalisation(graph).run()
    return graph


class _Functionalisation:
    def __init__(self, graph: Graph) -> None:
        self.graph, self.written = graph, graph.written()
        self.contents: dict[Storage, Value] = {}
        """What lies in each written storage at the present point of the program, as the storage's first value."""
        self.present: dict[Value, tuple[Value, Value]] = {}
        """For a view the content that it was made of last, and what it is in that."""
        self.nodes: list[Node] = []

    def run(self) -> None:
        graph = self.graph
        old, last = graph.nodes, {value.storage: node for node in graph.nodes for value in node.writes}
        for value in (*graph.inputs, *graph.constants):
            if value.storage in self.written:
                self.contents[value.storage] = value.storage.first
        with light(), torch._C._DisableAutocast(), torch._C._AutoDispatchBelowAutograd():
            for node in old:
                self._rewrite(node)
            shown = {value.storage for value in (*graph.inputs, *graph.constants)}
            for storage, node in last.items():
                if storage in shown and self.contents[storage] is not storage.first:
                    written = (storage.first, self.contents[storage])
                    copied = Node(torch.ops.aten.copy_.default, written, {}, storage.first, node.origin)
                    self.nodes.append(copied)
                    self.contents[storage] = storage.first
            graph.outputs = [map_values(output, self._now) for output in graph.outputs]
        graph.nodes = self.nodes

    def _rewrite(self, node: Node) -> None:
        touched = any(value.storage in self.written for value in (*node.values(), *node.results))
        if not touched:
            self.nodes.append(node)
            return
        if node.parts:
            raise NotFusable(f"{node.operation.name()} has graphs inside, and what they look at is written in place")
        if node.writes:
            self._write(node)
            return
        if node.results and all(value.base is not None and value.storage in self.written for value in node.results):
            node.detach()  # a view: made when it is looked at
            return
        args, kwargs = self._arguments(node)
        node.detach()
        made = Node(node.operation, args, kwargs, node.result, node.origin)
        self.nodes.append(made)
        for value in made.results:
            if value.storage in self.written and value.base is None:
                self.contents[value.storage] = value

    def _arguments(self, node: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple([map_values(arg, self._now) for arg in node.args]), {
            key: map_values(arg, self._now) for key, arg in node.kwargs.items()
        }

    def _now(self, value: Value) -> Value:
        """What stands for a value at the present point of the program."""
        if value.storage not in self.written:
            return value
        content = self.contents[value.storage]
        if value is value.storage.first:
            return content
        known = self.present.get(value)
        if known is None or known[0] is not content:
            known = self.present[value] = content, self._viewed(value, content)
        return known[1]

    def _viewed(self, value: Value, content: Value) -> Value:
        """A view of a content, made by the operation that made it of an earlier one."""
        maker, base = value.maker, value.base
        assert maker is not None and base is not None
        if (
            type(maker.result) is not Value
            or maker.args[0] is not base and base not in [*values_in(maker.args)]
            or maker.operation is torch.ops.aten.as_strided.default  # it counts from where the storage begins
        ):
            return self._by_strides(value, content)
        args = tuple([map_values(arg, self._now) for arg in maker.args])
        kwargs = {key: map_values(arg, self._now) for key, arg in maker.kwargs.items()}
        fake = value.fake
        if content.offset != value.storage.first.offset:  # an input may lie further back than what takes its place
            fake = self._faked(maker.operation, args, kwargs)
        made = Value(fake, content.storage, self._now(base))
        self.nodes.append(Node(maker.operation, args, kwargs, made, maker.origin))
        return made

    def _by_strides(self, value: Value, content: Value) -> Value:
        """One of several views that an operation gives at once, or one that says where in the storage it lies."""
        assert value.maker is not None
        if value.dtype != content.dtype:
            raise NotFusable("something is viewed in another dtype and written in place")
        operation = torch.ops.aten.as_strided.default
        args = (content, [*value.shape], [*value.strides], value.offset - value.storage.first.offset + content.offset)
        made = Value(self._faked(operation, args, {}), content.storage, content)
        self.nodes.append(Node(operation, args, {}, made, value.maker.origin))
        return made

    def _write(self, node: Node) -> None:
        if len(node.writes) != 1:
            raise NotFusable(f"{node.operation.name()} writes into several tensors")
        (target,) = node.writes
        if overlaps(target, node):
            raise NotFusable(f"{node.operation.name()} writes memory that it reads as other elements")
        if target.dtype != target.storage.first.dtype:
            raise NotFusable(f"{node.operation.name()} writes through a view in another dtype")
        functional = _functional(node.operation)
        is_out = node.kwargs.get("out") is target
        if functional is None or not (is_out or node.args and node.args[0] is target):
            raise NotFusable(f"{node.operation.name()} has no form that makes a new tensor")
        args, kwargs = self._arguments(node)
        if is_out:
            del kwargs["out"]
        for argument in node.operation._schema.arguments[len(args) :]:  # the other one may have no default
            if not argument.kwarg_only:  # by place: lowering has names of its own
                args = (*args, kwargs.pop(argument.name, argument.default_value))
            elif argument.has_default_value():
                kwargs.setdefault(argument.name, argument.default_value)
        if functional is torch.ops.aten.bernoulli.p and not kwargs.get("generator") and not target.fake.is_contiguous():
            functional, kwargs = BERNOULLI_LIKE, {}
        content = self.contents[target.storage]
        node.detach()
        if functional is torch.ops.aten.copy.default and _lies_like(args[1], args[0]):
            # what was there before has no part in it
            if args[1].dtype != target.dtype:
                new = self._made(torch.ops.aten._to_copy.default, (args[1],), {"dtype": target.dtype}, node.origin)
            else:
                new = self._made(torch.ops.aten.clone.default, (args[1],), {}, node.origin)
        else:
            new = self._made(functional, args, kwargs, node.origin)
        if new.dtype != target.dtype:
            new = self._made(torch.ops.aten._to_copy.default, (new,), {"dtype": target.dtype}, node.origin)
        first = target.storage.first
        if target is not first and (target.shape, target.strides, target.offset) != (
            first.shape, first.strides, first.offset,
        ):
            place = ([*target.shape], [*target.strides], target.offset - first.offset + content.offset)
            new = self._made(torch.ops.aten.as_strided_scatter.default, (content, new, *place), {}, node.origin)
        elif new.strides != first.strides:  # some operations make tensors that lie in another way
            new = self._made(torch.ops.aten.copy.default, (content, new), {}, node.origin)
        if (new.shape, new.strides) != (first.shape, first.strides):
            raise NotFusable(f"what {node.operation.name()} writes would lie differently in a tensor of its own")
        self.contents[target.storage] = new

    def _made(
        self, operation: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], origin: Origin
    ) -> Value:
        """The one new value that an operation gives."""
        value = Value(self._faked(operation, args, kwargs))
        self.nodes.append(Node(operation, args, kwargs, value, origin))
        return value

    def _faked(self, operation: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What an operation gives on fakes."""
        with self.graph.fake_mode:
            return operation(
                *[map_values(arg, _fake) for arg in args],
                **{key: map_values(arg, _fake) for key, arg in kwargs.items()},
            )


def _lies_like(value: Any, other: Value) -> bool:
    """Whether copying a value, which may be a number, gives what lies in memory as another does, if perhaps in another
    dtype."""
    return (
        isinstance(value, Value)
        and (value.shape, value.strides, value.device) == (other.shape, other.strides, other.device)
        and (value.dtype != other.dtype or fills_memory(value))
    )


def _fake(value: Value) -> torch.Tensor:
    """What stands for a value where nothing is told to autograd: some kernels refuse what needs gradients."""
    return value.fake.detach() if value.fake.requires_grad else value.fake


@cache
def _functional(operation: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The operation that makes what this one writes into its first argument, or into `out`: of the same name without
    the underscore, perhaps with an ending that torch gives such, with the same arguments."""
    name, wanted = operation._opname, _arguments(operation)
    if wanted and wanted[-1][0] == "out":
        name, wanted = f"{name}_", wanted[:-1]
    if not name.endswith("_") or operation.namespace != "aten":
        return None
    for packet in (getattr(torch.ops.aten, f"{name[:-1]}{suffix}", None) for suffix in ("", "_functional")):
        if packet is None:
            continue
        candidates = [operation._overloadname, *packet.overloads()]
        for overload in (getattr(packet, candidate) for candidate in candidates if candidate in packet.overloads()):
            schema = overload._schema
            if not schema.is_mutable and _arguments(overload) == wanted and len(schema.returns) == 1:
                return overload
    return None


def _arguments(operation: torch._ops.OpOverload) -> list[tuple[str, str]]:
    return [(argument.name, str(argument.type)) for argument in operation._schema.arguments]
