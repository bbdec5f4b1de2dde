"""Lowering of a whole graph: one operation after the other, and the storages of their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from framejit.backends.fuse.graph.graph import Graph, HiddenBase, HiddenView
from framejit.backends.fuse.graph.node import BATCH_NORMS, TRAINING, Node
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.nodes import Layout, LoweredGraph
from framejit.backends.fuse.lowering import mutation
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.extern import call_extern, may_speak_when_run
from framejit.backends.fuse.lowering.fusable import is_fusable
from framejit.backends.fuse.lowering.lowered_tensor import LazyBuffer, Tensor
from framejit.backends.fuse.lowering.lowerings import lowering_of
from framejit.backends.fuse.lowering.operators import all_operators
from framejit.backends.fuse.lowering.operators.convolutions import CONVOLUTIONS, lower_with_bias_apart
from framejit.backends.fuse.lowering.operators.normalisation import lower_batch_norm
from framejit.backends.fuse.lowering.operators.products import PRODUCTS, lower_product
from framejit.backends.fuse.lowering.storages import Held, Storages, lies_inside
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.plan.plan_functions import (
    counted_apart,
    detached_view,
    reinterpreted,
    view_in_another_dtype,
    view_of,
)
from framejit.backends.fuse.sizes.symbolic_size import as_size, as_sizes
from framejit.backends.fuse.thread_state import AUTOCAST_DEVICES

all_operators.load()


def lower_graph(graph: Graph, tracked: bool) -> LoweredGraph:
    """Loop nests and ATen calls for a graph that the passes have been over.

    `tracked`: whether autograd would record operations on inputs; as no result needs gradients, it need not, and the
    plan must run with grad mode off. Results have the sizes and strides that the graph has for them. Depends on nothing
    but what `plan_key` looks at. Raises NotFusable where all of it is to run as ATen.
    """
    return _Lowering(graph, tracked).run()


class _Lowering:
    def __init__(self, graph: Graph, tracked: bool) -> None:
        self.graph, self.tracked = graph, tracked
        self.builder = Builder()
        self.storages = Storages(self.builder, graph)
        self.outputs: dict[Value, Layout] = {}
        self.views: dict[Value, int | None] = {}
        """Outputs that autograd has as views of inputs or of other outputs, and what it allows to be done to them."""
        self.viewed: set[Value | None] = set()
        """Outputs that others are views of."""
        self.bases: dict[tuple[HiddenBase, LazyBuffer], Tensor] = {}
        self.shown_bases: dict[Value, Tensor] = {}
        """Outputs that are no whole buffers, and that others are views of: the tensor objects that are returned for
        them."""

        self.returned = dict.fromkeys(graph.returned())
        self.given = Counter(value.storage for value in self.returned)
        """How many outputs lie in a storage."""
        self.counted = {graph.outputs[position]: number for position, number in graph.versions.items()}
        """How many writes autograd has counted of outputs."""
        self.apart = {graph.outputs[position]: number for position, number in graph.counted_apart.items()}
        """Outputs whose writes autograd counts apart from those of their memory, and the numbers of their counters."""
        self.counters: dict[int, tuple[Tensor, Any]] = {}
        """By such a number the first tensor object that has the counter, and where it begins in its content."""

    def run(self) -> LoweredGraph:
        b, graph = self.builder, self.graph
        for position, (name, value) in enumerate(zip(graph.names, graph.inputs)):
            self.storages.add_input(value, name, position)
        for value, constant in graph.constants.items():
            if constant.made:
                self.storages.storage(value)  # so that views of it are known as such
        for node in graph.nodes:
            b.origin = str(node.origin)
            self.storages.known.note(node)
            self._lower(node)
            self._put_returned(node)
        b.origin = ""
        self.views = views = {graph.outputs[position]: creation for position, creation in graph.views.items()}
        self.viewed = {self._shown_base(value) for value in views}
        hidden = {
            graph.outputs[position]: view
            for position, view in graph.hidden_views.items()
            if graph.outputs[position] not in views
        }
        for value in graph.outputs:  # first what others are views of
            if isinstance(value, Value) and value not in views and value not in hidden:
                self._output(value, False)
        for value, view in hidden.items():
            if value not in self.outputs and (layout := self._hidden_view(value, view)) is not None:
                self.outputs[value] = layout
        outputs = [
            self._output(value, value in views) if isinstance(value, Value) else value for value in graph.outputs
        ]
        mutation.bump_versions(b, self.storages, graph.counted_writes)
        mutation.count_results(b, [(self.outputs[value], number) for value, number in self.counted.items()])
        plain = self.tracked or any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES))
        return LoweredGraph(b.buffers, b.nodes, outputs, len(graph.inputs), graph.own_inputs, plain)

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
                raise NotFusable(
                    "ATen is to do a batch normalisation in training, which writes what its schema does not tell"
                )
        lowering = lowering_of(node.name, node.operation._overloadname) if fusable else None
        if lowering is not None and len(fresh) == sum(1 for _ in node.returned()) and accepts(node):
            args, kwargs = self.storages.operands(node)
            result = lowering(self.builder, node.result, *args, **kwargs)
            if result is not NotImplemented:
                self._bind(node.result, result)
                return
        if fusable and node.name in PRODUCTS and self._product(node):
            return
        if node.name in CONVOLUTIONS and lower_with_bias_apart(self.builder, self.storages, node):
            return
        call_extern(self.builder, self.storages, node)

    def _put_returned(self, node: Node) -> None:
        """Put into memory what the graph returns, where it is made: what is computed of it later reads it, rather than
        what it was made of, which can go."""
        for value in node.results:
            is_own = value in self.returned and value.base is None
            if is_own and self.storages.knows(value) and not self.storages.is_written(value):
                self.builder.realise(self.storages.tensor(value).content)

    def _product(self, node: Node) -> bool:
        args, kwargs = self.storages.operands(node)
        result = lower_product(self.builder, node, args, kwargs)
        if result is not None:
            self._bind(node.result, result)
        return result is not None

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

    def _hidden_view(self, value: Value, view: HiddenView) -> Layout | None:
        """An output as a view of its hidden base. None where the base is not in memory as it is in eager: of a constant
        nobody may have a view."""
        held = self.storages.storage(value)
        start = as_size(value.offset) * value.itemsize - as_size(view.before)  # bytes from the storage's first element
        is_typed = view.base.dtype != held.content.dtype
        if (is_typed or value.dtype != held.content.dtype) and self.storages.is_written(value):
            return None
        made = self.bases.get((view.base, held.content))
        if made is None and value in self.apart:
            if is_typed:
                raise NotFusable("an output is a view, in another dtype, of x.data")
            base = Tensor(
                held.content, as_sizes(view.base.shape), as_sizes(view.base.strides),
                start // view.base.dtype.itemsize - held.offset,
            )
            made = Tensor.of(self.builder.held(self._counted_apart(base, self.apart[value]).buffer))
            self.bases[view.base, held.content] = made
        if made is None:
            made = self._typed_base(view.base, held, start) if is_typed else self._hidden_base(view.base, held, start)
            if made is None:
                return None
            self.bases[view.base, held.content] = made
        return self._view_of(made, value, as_size(view.before), view.creation)

    def _hidden_base(self, base: HiddenBase, held: Held, start: int) -> Tensor | None:
        """A tensor object for a hidden base: of memory that nothing else that is returned is an object over, the one
        that the plan has anyway."""
        b = self.builder
        tensor = Tensor(
            held.content, as_sizes(base.shape), as_sizes(base.strides), start // base.dtype.itemsize - held.offset
        )
        if not lies_inside(tensor):
            return None
        layout = b.layout(tensor)
        memory = b.buffers[layout.buffer.memory]
        if memory.constant is not None:
            return None
        is_known = memory.input is not None or any(
            other.buffer.memory == memory.name for other in self.outputs.values()
        )
        if not is_known and layout.is_whole and (memory.sizes, memory.strides) == (layout.sizes, layout.strides):
            return tensor
        return Tensor.of(b.held(self._detached_view(tensor, layout).buffer))

    def _typed_base(self, base: HiddenBase, held: Held, start: int) -> Tensor | None:
        """A tensor object for a hidden base in another dtype than what lies in its storage."""
        b, content = self.builder, held.content
        if b.buffers[b.realise(content).memory].constant is not None:
            return None
        alias = b.buffer(base.shape, base.strides, base.dtype, content.device)
        b.extern(
            reinterpreted,
            (Tensor.of(content), base.dtype, alias.sizes, alias.strides, start - held.offset * content.dtype.itemsize),
            results=alias,
        )
        return Tensor.of(b.held(alias))

    def _alias(self, layout: Layout, make: Callable[..., torch.Tensor], *args: Any) -> Layout:
        """Another tensor object over the memory of a layout, by a function that the plan calls."""
        alias = self.builder.buffer(layout.sizes, layout.strides, layout.buffer.dtype, layout.buffer.device)
        self.builder.extern(make, args, results=alias)
        return Layout(alias, layout.sizes, layout.strides, 0)

    def _detached_view(self, tensor: Tensor, layout: Layout) -> Layout:
        return self._alias(
            layout, detached_view, Tensor.of(tensor.content), layout.sizes, layout.strides, layout.offset
        )

    def _counted_apart(self, tensor: Tensor, number: int) -> Layout:
        """A tensor object with the counter of that number."""
        layout = self.builder.layout(tensor)
        if number in self.counters:
            known, start = self.counters[number]
            return self._alias(layout, detached_view, known, layout.sizes, layout.strides, tensor.offset - start)
        made = self._alias(
            layout, counted_apart, Tensor.of(tensor.content), layout.sizes, layout.strides, layout.offset
        )
        self.counters[number] = Tensor.of(self.builder.held(made.buffer)), tensor.offset
        return made

    def _view_of(self, made: Tensor, value: Value, offset: Any, creation: int | None) -> Layout:
        """A value as a view of a tensor object, from so many bytes behind its first element on."""
        alias = self.builder.buffer(value.shape, value.strides, value.dtype, value.device)
        if value.dtype == made.dtype:
            self.builder.extern(
                view_of, (made, alias.sizes, alias.strides, offset // value.itemsize, creation), results=alias
            )
        else:
            self.builder.extern(
                view_in_another_dtype, (made, value.dtype, alias.sizes, alias.strides, offset, creation), results=alias
            )
        return Layout(alias, alias.sizes, alias.strides, 0)

    def _shown_base(self, value: Value) -> Value | None:
        """The output that an output is a view of, if it is one of another output."""
        base = value.base
        while base is not None and (base not in self.graph.outputs or base in self.views):
            base = base.base
        return base

    def _layout(self, value: Value, is_view: bool) -> Layout:
        if value in self.apart and not is_view:
            if value.dtype != self.storages.storage(value).content.dtype:
                raise NotFusable("an output is x.data in another dtype")
            apart = self._counted_apart(self.storages.tensor(value), self.apart[value])
            self.shown_bases[value] = Tensor.of(self.builder.held(apart.buffer))
            return apart
        if is_view and (typed := self._view_in_another_dtype(value)) is not None:
            return typed
        b, tensor = self.builder, self.storages.tensor(value)
        layout = b.layout(tensor)
        base = self._shown_base(value) if is_view else None
        if base is not None and base in self.shown_bases and value.dtype == base.dtype:
            offset = (tensor.offset - self.storages.tensor(base).offset) * value.itemsize
            return self._view_of(self.shown_bases[base], value, offset, self.views[value])
        if layout.buffer.input is None and not layout.is_whole and value in self.viewed:
            view = self._detached_view(tensor, layout)
            self.shown_bases[value] = Tensor.of(b.held(view.buffer))
            return view
        if layout.buffer.input is not None:
            is_shared = is_view or (layout.is_whole and value is not self.graph.inputs[layout.buffer.input])
            is_detached = not layout.is_whole and not is_view
        else:
            roots = [
                other
                for other in self.outputs.values()
                if other.buffer.memory == layout.buffer.memory and other.is_whole
            ]
            is_shared = bool(roots) and (layout.is_whole or is_view)
            # what a plan makes of memory that lies otherwise has a counter of its own, which nothing could set
            needs_counter = self.given[value.storage] > 1 or value in self.counted
            is_detached = not layout.is_whole and not is_view and needs_counter
        if not is_shared and not is_detached:
            return layout
        # another tensor object over all of an input, or of a result that has one; or what does not know that it is a
        # view
        if is_detached:
            made = self._detached_view(tensor, layout)
        elif is_view:
            made = self._view_of(Tensor.of(tensor.content), value, layout.offset * value.itemsize, self.views[value])
        else:
            made = self._alias(layout, torch.Tensor.detach, tensor)
        if value in self.viewed:
            self.shown_bases[value] = Tensor.of(b.held(made.buffer))
        return made

    def _view_in_another_dtype(self, value: Value) -> Layout | None:
        """An output that is a view of an input or of another output, and has another dtype than what lies in its
        storage. None for others."""
        held = self.storages.storage(value)
        base = self._shown_base(value)
        if value.dtype == held.content.dtype or self.storages.is_written(value):
            return None
        made, before = Tensor.of(held.content), held.offset
        if base is not None and base in self.shown_bases:
            made, before = self.shown_bases[base], as_size(base.offset)
        if made.dtype != held.content.dtype:
            return None
        return self._view_of(
            made, value, as_size(value.offset) * value.itemsize - before * made.dtype.itemsize, self.views[value]
        )
