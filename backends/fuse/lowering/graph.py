"""Lowering of a whole graph: one operation after the other, and the storages of their results."""

from __future__ import annotations

from typing import Any

import torch

from framejit.backends.fuse.errors import NotFusable
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import BATCH_NORMS, TRAINING, Node
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.ir import Layout, LoweredGraph
from framejit.backends.fuse.lowering import families, mutation
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.extern import call_extern, may_speak_when_run
from framejit.backends.fuse.lowering.normalisation import lower_batch_norm
from framejit.backends.fuse.lowering.registry import lowering_of
from framejit.backends.fuse.lowering.storages import Storages
from framejit.backends.fuse.lowering.support import is_fusable
from framejit.backends.fuse.lowering.tensor import Tensor
from framejit.backends.fuse.plan_functions import detached_view, view_of_input
from framejit.backends.fuse.thread_state import AUTOCAST_DEVICES

families.load()


def lower_graph(graph: Graph, tracked: bool) -> LoweredGraph:
    """Loop nests and ATen calls for a graph that the passes have been over.

    `tracked`: whether autograd would record operations on inputs; as no result needs gradients, it need not, and the plan must run with grad mode off. Results
    have the sizes and strides that the graph has for them. Depends on nothing but what `plan_key` looks at.
    Raises NotFusable where all of it is to run as ATen.
    """
    return _Lowering(graph, tracked).run()


class _Lowering:
    def __init__(self, graph: Graph, tracked: bool) -> None:
        self.graph, self.tracked = graph, tracked
        self.builder = Builder()
        self.storages = Storages(self.builder, graph)
        self.outputs: dict[Value, Layout] = {}

    def run(self) -> LoweredGraph:
        b, graph = self.builder, self.graph
        for position, (name, value) in enumerate(zip(graph.names, graph.inputs)):
            self.storages.add_input(value, name, position)
        for value, constant in graph.constants.items():
            if constant.computed:
                self.storages.storage(value)  # so that views of it are known as such
        for node in graph.nodes:
            b.origin = node.origin
            self.storages.known.note(node)
            self._lower(node)
        b.origin = ""
        views = {graph.outputs[position] for position in graph.views}
        for value in graph.outputs:  # first what others are views of
            if isinstance(value, Value) and value not in views:
                self._output(value, False)
        outputs = [self._output(value, value in views) if isinstance(value, Value) else value for value in graph.outputs]
        mutation.bump_versions(b, self.storages, graph.counted_writes)
        return LoweredGraph(b.buffers, b.nodes, outputs, len(graph.inputs), plain=self.tracked or any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)))

    def _lower(self, node: Node) -> None:
        if node.operation._schema.is_mutable or (node.writes and node.operation.name() not in BATCH_NORMS):
            mutation.lower_mutation(self.builder, self.storages, node)
            return
        fresh = [value for value in node.returned() if not self.storages.knows(value)]
        if not fresh:  # views only; a view is its sizes, strides and offset, whatever operation made it
            if may_speak_when_run(node):
                call_extern(self.builder, self.storages, node)
            return
        fusable = is_fusable(node)
        if node.operation.name() in BATCH_NORMS:
            if fusable and node.name == "batch_norm" and accepts(node) and self._batch_norm(node):
                return
            if node.args[TRAINING]:
                raise NotFusable("ATen is to do a batch normalisation in training, which writes what its schema does not tell")
        lowering = lowering_of(node.name, node.operation._overloadname) if fusable else None
        if lowering is not None and len(fresh) == sum(1 for _ in node.returned()) and accepts(node):
            args, kwargs = self.storages.operands(node)
            result = lowering(self.builder, node.result, *args, **kwargs)
            if result is not NotImplemented:
                self._bind(node.result, result)
                return
        call_extern(self.builder, self.storages, node)

    def _batch_norm(self, node: Node) -> bool:
        result = lower_batch_norm(self.builder, self.storages, node)
        if result is not None:
            self.storages.bind(node.result, result)
        return result is not None

    def _bind(self, values: Any, tensors: Any) -> None:
        pairs = zip(values, tensors, strict=True) if isinstance(values, (tuple, list)) else [(values, tensors)]
        for value, tensor in pairs:
            if tensor is not None:
                self.storages.bind(value, tensor)

    def _output(self, value: Value, is_view: bool) -> Layout:
        known = self.outputs.get(value)
        if known is None:
            known = self.outputs[value] = self._layout(value, is_view)
        return known

    def _layout(self, value: Value, is_view: bool) -> Layout:
        b, tensor = self.builder, self.storages.tensor(value)
        layout = b.layout(tensor)
        if layout.buffer.input is not None:
            is_shared = layout.is_whole and value is not self.graph.inputs[layout.buffer.input]
            is_detached = not layout.is_whole and not is_view
        else:
            roots = [other for other in self.outputs.values() if other.buffer.memory == layout.buffer.memory and other.is_whole]
            is_shared, is_detached = bool(roots) and (layout.is_whole or is_view), False
        if not is_shared and not is_detached:
            return layout
        # another tensor object over all of an input, or of a result that has one; or what does not know that it is a view
        alias = b.buffer(layout.sizes, layout.strides, layout.buffer.dtype, layout.buffer.device)
        if is_shared and not is_view:
            b.extern(torch.Tensor.detach, (tensor,), results=alias)
        else:
            make = view_of_input if is_shared else detached_view
            b.extern(make, (Tensor.of(tensor.content), layout.sizes, layout.strides, layout.offset), results=alias)
        return Layout(alias, layout.sizes, layout.strides, 0)
