"""Lowering of a whole graph: one traced operation after the other, and the storages of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor

from framejit.backends.fuse.errors import NotFusable
from framejit.backends.fuse.ir import Layout, LoweredGraph
from framejit.backends.fuse.lowering import families, mutation
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.extern import call_extern, may_raise_when_run
from framejit.backends.fuse.lowering.frozen import fold
from framejit.backends.fuse.lowering.normalisation import lower_batch_norm
from framejit.backends.fuse.lowering.registry import keeps, lowering_of
from framejit.backends.fuse.lowering.storages import Storages
from framejit.backends.fuse.lowering.support import is_fusable
from framejit.backends.fuse.lowering.tensor import Tensor
from framejit.backends.fuse.open_size import as_size, hint
from framejit.backends.fuse.plan_functions import detached_view, view_of_input
from framejit.backends.fuse.thread_state import AUTOCAST_DEVICES
from framejit.backends.fuse.trace import Call, Trace, trace
from framejit.symbols.conditions import Conditions

families.load()

NORMALISATIONS: Final = frozenset(("aten::batch_norm", "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm"))
"""Operations that in training, their sixth argument, write into running statistics without saying so in their schema."""


def lower(gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor]) -> LoweredGraph:
    """Loop nests and ATen calls for a graph whose placeholders have fakes in `meta["val"]` or `meta["example_value"]`.

    The plan must run them with grad mode off. Results have the sizes and strides that the fakes have. Raises NotFusable where all of the graph
    is to run as ATen.
    """
    return lower_trace(*trace_graph(gm, example_inputs))


def trace_graph(gm: fx.GraphModule, example_inputs: Sequence[torch.Tensor], conditions: Conditions | None = None) -> tuple[Trace, bool]:
    """The operations of such a graph, and whether autograd would record operations on its inputs. Raises NotFusable.

    With `conditions`, sizes may be open.
    """
    try:
        traced = trace(gm, keeps, conditions=conditions)
    except NotFusable:
        if not any(example.device.type == "cuda" for example in example_inputs):
            raise
        traced = trace(gm, keeps, prefer=False, conditions=conditions)  # a view, say, that is only possible in the layout that the program expects
    _check_inputs(traced, example_inputs)
    fold(traced, gm, example_inputs)
    tracked = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (*example_inputs, *traced.constants.values()))
    return traced, tracked


def lower_trace(traced: Trace, tracked: bool) -> LoweredGraph:
    """What `lower` gives, from what `trace_graph` gives. It depends on nothing else but what `plan_key` looks at. Raises NotFusable."""
    return _Lowering(traced, tracked).run()


class _Lowering:
    def __init__(self, traced: Trace, tracked: bool) -> None:
        """`tracked`: whether autograd would record operations on inputs; as no result needs gradients, it need not."""
        self.trace, self.tracked = traced, tracked
        self.builder = Builder()
        self.storages = Storages(self.builder, traced)
        self.outputs: dict[int, Layout] = {}
        """For the id of a fake that the graph returns, what it returns."""

    def run(self) -> LoweredGraph:
        b, trace = self.builder, self.trace
        for position, (name, fake) in enumerate(zip(trace.names, trace.inputs)):
            self.storages.add_input(fake, name, position)
        for fake in trace.folded:
            self.storages.storage(fake)  # so that views of it are known as such
        self.storages.count_uses(trace)
        for call in trace.calls:
            b.origin = call.origin
            self.storages.known_values.note(call)
            self._lower(call)
        b.origin = ""
        views = {id(trace.outputs[position]) for position in trace.views}
        for value in trace.outputs:  # first what others are views of
            if id(value) not in views:
                self._output(value, False)
        outputs = [self._output(value, id(value) in views) for value in trace.outputs]
        mutation.bump_versions(b, self.storages, trace.writes)
        return LoweredGraph(b.buffers, b.nodes, outputs, len(trace.inputs), plain=self.tracked or any(map(torch.is_autocast_enabled, AUTOCAST_DEVICES)))

    def _lower(self, call: Call) -> None:
        if call.func._schema.is_mutable:
            mutation.lower_mutation(self.builder, self.storages, call)
            return
        fresh = [fake for fake in call.results() if not self.storages.knows(fake)]
        if not fresh:  # views only; a view is its sizes, strides and offset, whatever operation made it
            if may_raise_when_run(call):
                call_extern(self.builder, self.storages, call)
            return
        fusable = is_fusable(call)
        if call.func.name() in NORMALISATIONS:
            if fusable and call.name == "batch_norm" and accepts(call) and self._batch_norm(call):
                return
            if call.args[5]:
                raise NotFusable("ATen is to do a batch normalisation in training, which writes what its schema does not tell")
        lowering = lowering_of(call.name, call.func._overloadname) if fusable else None
        if lowering is not None and len(fresh) == sum(1 for _ in call.results()) and accepts(call):
            args, kwargs = self.storages.operands(call)
            result = lowering(self.builder, call.result, *args, **kwargs)
            if result is not NotImplemented:
                self._bind(call.result, result)
                return
        call_extern(self.builder, self.storages, call)

    def _batch_norm(self, call: Call) -> bool:
        result = lower_batch_norm(self.builder, self.storages, call)
        if result is not None:
            self.storages.bind(call.result, result)
        return result is not None

    def _bind(self, fakes: Any, results: Any) -> None:
        pairs = zip(fakes, results, strict=True) if isinstance(fakes, (tuple, list)) else [(fakes, results)]
        for fake, result in pairs:
            if result is not None:
                self.storages.bind(fake, result)

    def _output(self, value: Any, is_view: bool) -> Layout | Any:
        if not isinstance(value, torch.Tensor):
            return value
        known = self.outputs.get(id(value))
        if known is None:
            known = self.outputs[id(value)] = self._layout(value, is_view)
        return known

    def _layout(self, value: torch.Tensor, is_view: bool) -> Layout:
        b, tensor = self.builder, self.storages.tensor(value)
        layout = b.layout(tensor)
        if layout.buffer.input is not None:
            is_shared = layout.is_whole and value is not self.trace.inputs[layout.buffer.input]
            is_detached = not layout.is_whole and not is_view
        else:
            roots = [other for other in self.outputs.values() if isinstance(other, Layout) and other.buffer.memory == layout.buffer.memory and other.is_whole]
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


def _check_inputs(traced: Trace, examples: Sequence[torch.Tensor]) -> None:
    """Fakes were made when capture began; what was done to an input's sizes since, or memory that inputs share, is not in them."""
    if len(examples) != len(traced.inputs):
        raise NotFusable("there are more or fewer example inputs than placeholders")
    if any(torch._C._dispatch_keys(example).has(torch._C.DispatchKey.Python) for example in examples if not isinstance(example, FakeTensor)):
        raise NotFusable("an input is of a class of tensors whose operations are written in Python")
    for fake, example in zip(traced.inputs, examples):
        layout = [(hint(as_size(size)), hint(as_size(stride))) for size, stride in zip(fake.shape, fake.stride())]
        if layout != [*zip(example.shape, example.stride())] or fake.dtype != example.dtype:
            raise NotFusable("an input's sizes differ from those it was captured with")
    if any(call.func._schema.is_mutable for call in traced.calls):
        memory = [example.untyped_storage()._cdata for example in examples]
        if len(set(memory)) < len(memory):
            raise NotFusable("inputs share memory and something is written in place")
