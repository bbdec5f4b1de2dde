"""`torch.cond`: both branches are captured, each as a graph of its own, and a node of the graph runs one of them.

In plain Python torch.cond has Dynamo compile the call. Here nothing of it is needed: the node asks the predicate when
the graph runs, as the program would. What torch.cond asks of its branches is asked here too: tensors of the same kind
from both, none of them an operand or a part of one, and no effects.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit.backends.conditional import Conditional
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.sym_int import SIZE
from framejit.values.tensors.higher_order.nested_graph import Leaf, filled, refuse_data_sizes, structure, valued_form
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

CODE, HINT = "FJ127", "have both branches compute new tensors of the same shapes and dtypes, and change nothing"


def cond(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch.cond(pred, true_fn, false_fn, operands=())`."""
    pred, if_true, if_false, operands = _arguments(args, kwargs)
    pred = realize(frame, pred)
    given = (
        [realize(frame, operand) for operand in realize(frame, operands).iterate(frame)] if operands is not None else []
    )
    if pred.python_type() in (bool, int, float):  # known now: torch.cond calls one of the functions itself
        return realize(frame, if_true if frame.truth(pred) else if_false).call(frame, given, {})
    if not isinstance(pred, TensorValue) or pred.fake.numel() != 1 or pred.fake.dtype != torch.bool:
        raise Unsupported("torch.cond on a predicate that is not one bool", CODE, HINT)
    if not all(_consists_of_tensors(structure(frame, operand, [])) for operand in given):
        raise Unsupported("torch.cond on operands that are not all tensors", CODE)
    taken, other = _Branch(frame, if_true, given), _Branch(frame, if_false, given)
    if taken.kinds() != other.kinds() or taken.shape != other.shape:
        raise Unsupported(
            "the branches of torch.cond give tensors of different shapes, strides, dtypes or devices", CODE, HINT
        )
    outside = list(dict.fromkeys((*taken.outside, *other.outside)))
    conditional = Conditional(taken.module(outside), other.module(outside))
    results = frame.capture.graph.add(
        conditional, (pred.node, *outside), tuple(result.fake for result in taken.results)
    )
    return taken.like_result(list(results.iterate(frame)))  # type: ignore[arg-type]


def _arguments(args: list[Value], kwargs: dict[str, Value]) -> tuple[Value, Value, Value, Value | None]:
    names = ("pred", "true_fn", "false_fn", "operands")
    given = dict(zip(names, args)) | kwargs
    if len(args) > len(names) or not set(names[:3]) <= set(given) <= set(names):
        raise Unsupported("torch.cond is called with other arguments than it has", CODE)
    return given["pred"], given["true_fn"], given["false_fn"], given.get("operands")


def _consists_of_tensors(form: Any) -> bool:
    parts = form.values() if isinstance(form, dict) else form if isinstance(form, (tuple, list)) else None
    return isinstance(form, Leaf) if parts is None else all(map(_consists_of_tensors, parts))


class _Branch:
    """A branch: its nodes, which were captured at the end of the graph and taken out again, and its results."""

    def __init__(self, frame: Frame, function: Value, operands: list[Value]) -> None:
        graph, effects = frame.capture.graph, frame.capture.effects
        before, version = set(graph.graph.nodes), effects.version
        known = {_storage(node) for node in before} - {None}
        try:
            with graph.taken_out():
                result = realize(frame, function).call(frame, operands, {})
        except Raised as e:
            raise Unsupported(f"a branch of torch.cond raises {e.value.cls.__name__}", CODE, HINT) from None
        if effects.version != version:
            raise Unsupported("a branch of torch.cond changes something", CODE, HINT)
        self.results: list[TensorValue] = []
        self._form = structure(frame, result, self.results)
        if not self.results or not _consists_of_tensors(self._form):
            raise Unsupported("a branch of torch.cond returns something else than tensors", CODE, HINT)
        self.shape = filled(self._form, lambda number: None)
        inputs = {*graph.placeholders}
        self.nodes = [
            node for node in graph.graph.nodes if node not in before and node not in inputs and SIZE not in node.meta
        ]
        refuse_data_sizes(self.nodes, "torch.cond")
        storages = [_storage(result.node) for result in self.results]
        fresh = [
            storage
            for storage in storages
            if storage not in known and not any(storage == _storage(node) for node in inputs)
        ]
        if len(set(fresh)) != len(storages) or any(result.node not in self.nodes for result in self.results):
            raise Unsupported(
                "a branch of torch.cond returns an operand, a part of one, or the same tensor twice", CODE, HINT
            )
        self.outside = list(
            dict.fromkeys(used for node in self.nodes for used in node.all_input_nodes if used not in self.nodes)
        )
        self._copy, self._copied = fx.Graph(), dict[fx.Node, fx.Node]()
        self._take_out(graph.graph)

    def _take_out(self, graph: fx.Graph) -> None:
        self._places = {node: self._copy.placeholder(node.name) for node in self.outside}
        for node in self.nodes:
            made = self._copy.node_copy(node, lambda used: self._copied.get(used) or self._places[used])
            self._copied[node] = made
        for node in reversed(self.nodes):
            graph.erase_node(node)

    def module(self, operands: list[fx.Node]) -> fx.GraphModule:
        """The branch as a function of all nodes that either branch uses."""
        graph = fx.Graph()
        places = {node: graph.placeholder(node.name) for node in operands}
        for node in operands:
            places[node].meta = dict(node.meta)
        copies = {self._places[node]: places[node] for node in self.outside}
        for node in self._copy.nodes:
            if node.op != "placeholder":
                copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.output(tuple(copies[self._copied[result.node]] for result in self.results))
        return fx.GraphModule(torch.nn.Module(), graph)

    def kinds(self) -> list[tuple[Any, ...]]:
        """What must be the same of both branches."""
        return [
            (f.shape, f.stride(), f.storage_offset(), f.dtype, f.device, f.requires_grad)
            for f in (result.fake for result in self.results)
        ]

    def like_result(self, tensors: list[TensorValue]) -> Value:
        """The tensors in the form in which the branch returned its own."""
        return valued_form(self._form, tensors)


def _storage(node: fx.Node) -> int | None:
    """What tells the storage of a node's result from others."""
    fake = node.meta.get("val")
    return fake.untyped_storage()._cdata if isinstance(fake, torch.Tensor) else None
