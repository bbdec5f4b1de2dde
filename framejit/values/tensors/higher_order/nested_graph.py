"""A function captured as a graph of its own, which a node of the graph hands to something of torch's that takes
functions: a transform, a loop."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from framejit.backends.graph_identity import note_result
from framejit.backends.subgraph import subgraph
from framejit.fakes.data_sizes import with_data_sizes
from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, deep_realize, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.mapping import DictValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.sym_int import SIZE
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

CODE = "FJ129"
EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})


class Leaf:
    """Where a tensor stands in a structure of tuples, lists and dicts: its number."""

    def __init__(self, number: int) -> None:
        self.number = number


def structure(frame: Frame, value: Value, tensors: list[TensorValue]) -> Any:
    """The form of a value, in plain Python; its tensors are added to `tensors`, and stand in it as leaves."""
    value = realize(frame, value)
    if isinstance(value, TensorValue):
        tensors.append(value)
        return Leaf(len(tensors) - 1)
    if isinstance(value, TupleValue) and value.python_type() is tuple:
        return tuple(structure(frame, item, tensors) for item in value.items)
    if isinstance(value, ListValue) and value.python_type() is list:
        return [structure(frame, item, tensors) for item in value.items]
    if (
        isinstance(value, DictValue)
        and value.python_type() is dict
        and not any(isinstance(key, Value) for key in value.items)
    ):
        return {key: structure(frame, item, tensors) for key, item in value.items.items()}
    if isinstance(value, ConstantValue):
        return value.constant()
    raise Unsupported(f"{value.describe()} as an argument or a result of a function that torch is given", CODE)


def filled(form: Any, leaves: Callable[[int], Any]) -> Any:
    """A structure with something in the place of its leaves."""
    if isinstance(form, Leaf):
        return leaves(form.number)
    if isinstance(form, (tuple, list)):
        return type(form)([filled(part, leaves) for part in form])
    return {key: filled(part, leaves) for key, part in form.items()} if isinstance(form, dict) else form


def tensors_of(result: Any) -> Iterator[torch.Tensor]:
    """The tensors of a structure, in the order of its leaves."""
    if isinstance(result, torch.Tensor):
        yield result
    elif isinstance(result, (tuple, list, dict)):
        for part in result.values() if isinstance(result, dict) else result:
            yield from tensors_of(part)


def valued(result: Any, tensors: Iterator[Value]) -> Value:
    """A structure of tensors as values, `tensors` in the place of its tensors."""
    return _as_values(result, torch.Tensor, lambda tensor: next(tensors))


def _as_values(structure: Any, kind: type, leaf: Callable[[Any], Value]) -> Value:
    """Tuples, lists and dicts as values, `leaf` of each object of a kind, and constants."""
    if isinstance(structure, kind):
        return leaf(structure)
    if isinstance(structure, (tuple, list)):
        items = [_as_values(part, kind, leaf) for part in structure]
        return ListValue(items) if isinstance(structure, list) else TupleValue(items)
    return (
        DictValue({key: _as_values(part, kind, leaf) for key, part in structure.items()})
        if isinstance(structure, dict)
        else ConstantValue(structure)
    )


class NestedGraph:
    """`function` called with a structure of arguments whose tensors have the given fakes, taken out of the graph again.
    The form of arguments by name is in `named`; their tensors are numbered on, and follow those of the others.

    `outside` are the nodes around it that it uses: they are handed to `call` behind the tensors of the arguments.
    """

    def __init__(
        self, frame: Frame, function: Value, form: tuple[Any, ...], fakes: list[torch.Tensor], what: str,
        named: Mapping[str, Any] = EMPTY,
    ) -> None:
        self._named = named
        graph = frame.capture.graph
        before = set(graph.graph.nodes)
        try:
            with frame.capture.state_apart(), graph.taken_out():
                self._capture(frame, function, form, fakes, what, before)
        finally:
            inputs = {*graph.placeholders}
            for node in reversed(
                [n for n in graph.graph.nodes if n not in before and n not in inputs and SIZE not in n.meta]
            ):
                graph.graph.erase_node(node)

    def _capture(
        self, frame: Frame, function: Value, form: tuple[Any, ...], fakes: list[torch.Tensor], what: str,
        before: set[fx.Node],
    ) -> None:
        graph = frame.capture.graph
        operands = [operand_node(graph.graph, fake) for fake in fakes]
        try:
            values = [TensorValue(node, fake, torch.Tensor) for node, fake in zip(operands, fakes)]
            arguments = [valued_form(part, values) for part in form]
            by_name = {name: valued_form(part, values) for name, part in self._named.items()}
            result = deep_realize(frame, [frame.call(realize(frame, function), arguments, by_name)])[0]
        except Raised as e:
            raise Unsupported(f"the function that {what} is given raises {e.value.cls.__name__}", CODE) from None
        self.results: list[TensorValue] = []
        self.result_form = structure(frame, result, self.results)
        if any(value.copy_of is not None for value in self.results):
            raise Unsupported(f"the function that {what} is given returns a view that data decides", CODE)
        inputs = {*graph.placeholders}
        made = [
            node for node in graph.graph.nodes if node not in before and node not in inputs and SIZE not in node.meta
        ]
        inner = [node for node in made if node not in operands]
        refuse_data_sizes(inner, what)
        used = dict.fromkeys(n for node in inner for n in node.all_input_nodes) | dict.fromkeys(
            result.node for result in self.results
        )
        self.outside = [node for node in used if node not in made]
        self.fresh = all(result.node in inner for result in self.results) and len(
            {result.node for result in self.results}
        ) == len(self.results)
        self.module = subgraph((*operands, *self.outside), inner, [result.node for result in self.results])

    def call(self, arguments: tuple[Any, ...], outside: tuple[Any, ...], named: Mapping[str, Any] = EMPTY) -> Any:
        """The function's results for arguments of the form it was captured with, by running its graph."""
        by_name = tensors_of([named[name] for name in self._named])
        results = self.module.forward(*tensors_of(arguments), *by_name, *outside)
        return filled(self.result_form, results.__getitem__)


def refuse_data_sizes(nodes: list[fx.Node], what: str) -> None:
    if with_data_sizes(nodes) is not None:
        raise Unsupported(f"data decides the size of a result in a function that {what} is given", "FJ102")


def valued_form(form: Any, tensors: list[TensorValue]) -> Value:
    """A structure as values, tensors in the places of the leaves that number them."""
    return _as_values(form, Leaf, lambda place: tensors[place.number])


def operand_node(graph: fx.Graph, fake: torch.Tensor) -> fx.Node:
    """A node that stands for an argument of a function, until that is taken out of the graph."""
    node = graph.call_function(_stands_for_an_argument)
    note_result(node, fake)
    return node


def _stands_for_an_argument() -> None:
    raise AssertionError("taken out of the graph with the function it is an argument of")
