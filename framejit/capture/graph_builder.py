"""The FX graph under construction: inputs by source, nodes with metadata, outputs."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from framejit.capture.metadata import Metadata, label
from framejit.values.base import Value
from framejit.values.signals import Unsupported
from framejit.values.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.capture.input_sizes import OpenLayout
    from framejit.guards.sources import Source

# Methods that give the very tensor back when there is nothing to do; such a call leaves no node.
_MAY_RETURN_SELF = frozenset(
    ("contiguous", "to", "type", "float", "double", "half", "bfloat16", "int", "long", "bool", "cpu", "cuda", "expand_as", "requires_grad_", "type_as")
)


class GraphBuilder:
    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.metadata = Metadata()
        self.inputs: list[TensorValue] = []  # in order of their placeholders
        self.examples: list[torch.Tensor] = []
        self._last_placeholder: fx.Node | None = None
        self.n_ops = 0
        self.user_frame: Any = None  # gives the user's stack as text; set by the capture
        self.user_place: Any = None  # gives the expression the user's program is at; likewise
        self.on_write: Callable[[TensorValue], None] = lambda tensor: None  # told of tensors an operation writes to

    # ---- inputs ---------------------------------------------------------------------------

    def add_input(self, tensor: torch.Tensor, source: Source, layout: OpenLayout | None = None) -> TensorValue:
        fake = self.metadata.fake_of(tensor, layout)
        where = (
            self.graph.inserting_after(self._last_placeholder) if self._last_placeholder else self.graph.inserting_before(next(iter(self.graph.nodes), None))
        )
        with where:
            node = self.graph.placeholder(_identifier(source.name()))
        self._last_placeholder = node
        node.meta["val"] = node.meta["example_value"] = fake
        node.meta["source"] = source.name()
        value = TensorValue(node, fake, type(tensor), source)
        self.inputs.append(value)
        self.examples.append(tensor)
        return value

    def input_at(self, source: Source) -> TensorValue:
        """The input that was read at a source. Raises StopIteration where there is none."""
        return next(value for value in self.inputs if value.source == source)

    # ---- nodes ----------------------------------------------------------------------------

    def call(self, target: Any, args: tuple[Value, ...] | list[Value], kwargs: dict[str, Value] | None = None, is_method: bool = False) -> Value:
        """Add a node that calls `target` (a function, or a method name when `is_method`), and return its value.

        A call whose result is a plain Python value known from metadata alone leaves no node.
        """
        kwargs = kwargs or {}
        node_args = tuple(a.proxy() for a in args)
        node_kwargs = {k: v.proxy() for k, v in kwargs.items()}
        tensors = {id(t.fake): t for t in _tensors_in((*args, *kwargs.values()))}
        fakes = fx.node.map_arg((node_args, node_kwargs), lambda n: n.meta["val"])
        versions = {key: _version(t.fake) for key, t in tensors.items()}
        result = self.metadata.run(target, is_method, *fakes)
        if result is NotImplemented:
            raise Unsupported(f"{target} is not implemented for these operands")
        written = [t for key, t in tensors.items() if _version(t.fake) != versions[key]]
        if not written:
            if not _has_tensor(result) and not (result is None and tensors):
                if tensors or _answers_without_tensors(target):
                    return _plain(result)
                raise Unsupported(f"{label(target)} is none framejit knows to be safe to ask while capturing", "FJ109")
            if isinstance(result, torch.Tensor) and id(result) in tensors and target in _MAY_RETURN_SELF:
                return tensors[id(result)]
        for tensor in written:
            self.on_write(tensor)
        node = self.graph.create_node("call_method" if is_method else "call_function", target, node_args, node_kwargs)
        return self._added(node, result, tensors)

    def add(self, target: Any, args: tuple[fx.Node, ...], result: Any) -> Value:
        """Add a node whose result on fakes is known, tensors that are none of its arguments."""
        return self._added(self.graph.call_function(target, args), result, {})

    def _added(self, node: fx.Node, result: Any, tensors: dict[int, TensorValue]) -> Value:
        node.meta["stack_trace"] = self.user_frame() if self.user_frame is not None else None
        node.meta["place"] = self.user_place() if self.user_place is not None else None
        self.n_ops += 1
        return self._wrap(result, node, tensors)

    def state_change(self, target: Any, args: tuple[Any, ...]) -> fx.Node:
        """A node that changes the thread's torch state (grad mode, autocast) when the graph runs."""
        node = self.graph.call_function(target, args)
        node.meta["stack_trace"] = self.user_frame() if self.user_frame is not None else None
        return node

    def _wrap(self, result: Any, node: fx.Node, tensors: dict[int, TensorValue]) -> Value:
        if isinstance(result, torch.Tensor):
            node.meta["val"] = node.meta["example_value"] = result
            known = tensors.get(id(result))
            if known is not None:  # in-place: the result is the argument itself
                return known
            value = TensorValue(node, result, torch.Tensor if type(result).__name__ == "FakeTensor" else type(result))
            tensors[id(result)] = value
            return value
        if isinstance(result, (tuple, list)):
            from framejit.values.sequence import ListValue, TupleValue

            items: list[Value] = []
            for i, part in enumerate(result):
                if isinstance(part, torch.Tensor) and id(part) in tensors:
                    items.append(tensors[id(part)])
                elif isinstance(part, (torch.Tensor, tuple, list)):
                    item = self.graph.call_function(operator.getitem, (node, i))
                    item.meta["stack_trace"], item.meta["place"] = node.meta.get("stack_trace"), node.meta.get("place")
                    items.append(self._wrap(part, item, tensors))
                else:
                    items.append(_plain(part))
            node.meta["val"] = node.meta["example_value"] = result
            return ListValue(items) if isinstance(result, list) else TupleValue(items, type(result))
        return _plain(result)

    # ---- state for restarts and breaks -----------------------------------------------------

    def finish(self, outputs: list[TensorValue]) -> tuple[fx.GraphModule, list[TensorValue], list[torch.Tensor]]:
        """Close the graph: its module, the inputs that are used, and example inputs in that order."""
        self.graph.output(tuple(o.node for o in outputs))
        _drop_dead_views(self.graph)
        used, examples = [], []
        for value, example in zip(self.inputs, self.examples):
            if value.node.users:
                used.append(value)
                examples.append(example)
            else:
                self.graph.erase_node(value.node)
        return fx.GraphModule(torch.nn.Module(), self.graph), used, examples


def _drop_dead_views(graph: fx.Graph) -> None:
    """Remove unused item reads of multi-output nodes; operations stay, for they may draw random numbers or write."""
    for node in reversed(list(graph.nodes)):
        if (
            node.op == "call_function"
            and not node.users
            and node.target is operator.getitem
            and not isinstance(node.args[1], fx.Node)
            and isinstance(node.args[0], fx.Node)
            and isinstance(node.args[0].meta.get("val"), (tuple, list))
        ):
            graph.erase_node(node)


def _plain(obj: Any) -> Value:
    from framejit.values.wrap import from_python

    return from_python(obj)


def _version(fake: torch.Tensor) -> int:
    """Grows with each in-place write; inference tensors keep no count."""
    return -1 if fake.is_inference() else fake._version


def _answers_without_tensors(target: Any) -> bool:
    """Operators compute from their arguments alone; other C functions of torch may read or change hidden state."""
    return isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)) or getattr(target, "__module__", None) in (
        "_operator",
        "builtins",
        "torch.functional",
        "torch.nn.functional",
    )


def _has_tensor(tree: Any) -> bool:
    if isinstance(tree, torch.Tensor):
        return True
    return isinstance(tree, (tuple, list)) and any(map(_has_tensor, tree))


def _tensors_in(values: tuple[Value, ...]) -> list[TensorValue]:
    found: list[TensorValue] = []
    for v in values:
        if isinstance(v, TensorValue):
            found.append(v)
        else:
            found.extend(_tensors_in(tuple(v.children())))
    return found


def _identifier(name: str) -> str:
    text = "".join(c if c.isalnum() else "_" for c in name).strip("_")
    return text if text and not text[0].isdigit() else f"input_{text}"
