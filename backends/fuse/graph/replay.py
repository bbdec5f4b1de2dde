"""A graph is recorded once more, with something put in or in other memory layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.node import Node, map_values
from framejit.backends.fuse.graph.origin import UNKNOWN
from framejit.backends.fuse.graph.places import place_of_offset
from framejit.backends.fuse.graph.record import Recorder, recording
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.fakes.light_torch import light


def recorded_again(graph: Graph, make_recorder: Callable[[Graph], Recorder]) -> Graph:
    """The graph as a recorder writes it down that is given the operations of `graph` one after the other. Results keep
    their strides.

    Raises NotFusable where an operation cannot work with what the recorder has made of its arguments (a view that is
    only possible in the layout that the program expects).
    """
    with light(), torch._C._DisableAutocast():
        return _Replay(graph, make_recorder).run()


class _Replay:
    def __init__(self, graph: Graph, make_recorder: Callable[[Graph], Recorder]) -> None:
        self.old = graph
        self.new = Graph(
            names=graph.names, views=graph.views, hidden_views=graph.hidden_views, counted_writes=graph.counted_writes,
            versions=graph.versions, counted_apart=graph.counted_apart, fake_mode=graph.fake_mode,
            conditions=graph.conditions, own_inputs=graph.own_inputs,
        )
        self.recorder = make_recorder(self.new)
        self.fakes: dict[Value, torch.Tensor] = {}
        self._taken: set[int] = set()
        """The fakes of inputs and constants so far, by their ids."""

    def run(self) -> Graph:
        old, new, recorder = self.old, self.new, self.recorder
        new.inputs = [recorder.value(self._same(value)) for value in old.inputs]
        for value, constant in old.constants.items():
            if not constant.literal:
                new.constant(recorder.value(self._same(value)), constant)
        with recording(recorder):
            for node in old.nodes:
                recorder.origin, recorder.autocast = node.origin, node.autocast
                if node.operation is torch.ops.aten.lift_fresh.default:
                    result = recorder.lifted(old.constants[node.args[0]].tensor)
                else:
                    args, kwargs = (
                        [map_values(arg, self._fake) for arg in node.args],
                        {key: map_values(arg, self._fake) for key, arg in node.kwargs.items()},
                    )
                    if place_of_offset(node.operation) is not None and args[0].stride() != node.args[0].strides:
                        raise NotFusable("what is in a storage is read by its places, and lies elsewhere now")
                    try:
                        result = _done(node.operation, args, kwargs)
                    except NotFusable:
                        laid_out = self._laid_out_for_view(node)
                        if laid_out is None:
                            raise
                        result = _done(node.operation, [laid_out, *args[1:]], kwargs)
                self._note(node.result, result)
            outputs = [self._laid_out(output) if isinstance(output, Value) else output for output in old.outputs]
        new.outputs = [recorder.value(output) if isinstance(output, torch.Tensor) else output for output in outputs]
        return new

    def _same(self, value: Value) -> torch.Tensor:
        """The fake of an input or constant. The recorder tells values by their fakes, which layers alike share
        (`layers/lengthening.py`): all but one get others here."""
        if value not in self.fakes:
            fake = value.fake
            if id(fake) in self._taken:
                if value is not value.storage.first or value.offset:
                    raise NotFusable("views that layers alike are given share a fake")
                with self.new.fake_mode:
                    fake = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
                fake.requires_grad_(value.fake.requires_grad)
            self._taken.add(id(fake))
            self.fakes[value] = fake
        return self.fakes[value]

    def _fake(self, value: Value) -> torch.Tensor:
        return self.fakes[value]

    def _note(self, result: Any, fakes: Any) -> None:
        if isinstance(result, Value):
            self.fakes.setdefault(result, fakes)
        elif isinstance(result, (tuple, list)):
            for part, fake in zip(result, fakes):
                self._note(part, fake)

    def _laid_out_for_view(self, node: Node) -> torch.Tensor | None:
        """What a node views, with the strides that eager gives it, where nobody can see that the view is one of a copy:
        nothing is written into it, and nothing of it is returned."""
        value = node.args[0] if node.args else None
        if not isinstance(value, Value) or self._fake(value).stride() == value.strides or not any(
            result.storage is value.storage for result in node.returned()
        ):
            return None
        if value.storage in self.old.written() or any(
            output.storage is value.storage for output in self.old.returned()
        ):
            return None
        return self._laid_out(value)

    def _laid_out(self, output: Value) -> torch.Tensor:
        """An output with the strides that eager gives it."""
        fake = self._fake(output)
        if fake.stride() == output.strides:
            return fake
        self.recorder.origin = output.maker.origin if output.maker is not None else UNKNOWN
        for memory_format in (torch.contiguous_format, torch.channels_last):
            laid_out = (
                fake.clone(memory_format=memory_format)
                if memory_format is torch.contiguous_format or fake.dim() == 4
                else fake
            )
            if laid_out.stride() == output.strides:
                return laid_out
        raise NotFusable("a preferred memory layout would show in the result")


def _done(operation: Any, args: Any, kwargs: Any) -> Any:
    try:
        return operation(*args, **kwargs)
    except NotFusable:
        raise
    except Exception as e:
        raise NotFusable(f"{operation.name()} on fakes raises {type(e).__name__}") from e
