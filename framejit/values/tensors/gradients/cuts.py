"""Tensors whose history is cut off, for hooks of their gradients: a leaf over its memory takes a tensor's place in the
graph, so that what comes behind leads to that.

Where a tensor has been used before hooks are put on it, the capture is done again, and cuts off its history when it is
made: what it is used for leads to the leaf then, too.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch import fx

from framejit.fakes.arguments import tensors_in
from framejit.fakes.metadata import version_of
from framejit.signals import NeedsCuts, ResultPlace, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.methods import BuiltinMethods, method
from framejit.values.tensors.gradients.hook_calls import passed
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame, Graph


class HooksValue(BuiltinMethods):
    """The table of a tensor's hooks, which handles lead to. What their numbers are is not looked at: they count up
    through a process."""

    mutable = True
    never_missed = True  # while a backward may come the history holds it; later on nobody calls what is in it

    def __init__(self) -> None:
        self.entries: list[tuple[Value, Value]] = []
        """Numbers and hooks."""

    def python_type(self) -> type:
        return OrderedDict

    def children(self) -> Iterator[Value]:
        return chain.from_iterable(self.entries)

    def add(self, frame: Frame, number: Value, hook: Value) -> None:
        frame.capture.effects.changed(self)
        self.entries.append((number, hook))

    @method("__contains__")
    def _contains(self, frame: Frame, number: Value) -> Value:
        return ConstantValue(self._place(frame, number) is not None)

    @method("__delitem__")
    def _remove(self, frame: Frame, number: Value) -> Value:
        place = self._place(frame, number)
        if place is None:
            raise Unsupported("a number of no hook", "FJ107")
        frame.capture.effects.changed(self)
        del self.entries[place]
        return NONE

    def _place(self, frame: Frame, number: Value) -> int | None:
        return next((place for place, (known, _) in enumerate(self.entries) if frame.equal(known, number)), None)

    def reconstruct(self, cg: Codegen) -> None:
        cg.call_function(_table, *chain.from_iterable(self.entries))

    def replay(self, cg: Codegen) -> None:
        """It is built as it is at the end."""


class HistoryCut:
    """Where the history of tensors was cut off: what is made of them leads to leaves, whose gradients go on from the
    tensors as they were made."""

    def __init__(self, tensors: list[TensorValue], leaves: list[TensorValue], made_at: int) -> None:
        self.made = [TensorValue(tensor.node, tensor.fake, tensor.cls) for tensor in tensors]
        """The tensors as they were made, with their history."""
        self.leaves = leaves
        self.versions = [version_of(tensor.fake) for tensor in tensors]
        self.made_at = made_at
        """The step of the capture that put the first hook on them; before that, the one that cut."""
        self.has_hooks = False
        """Whether captured code has ever put hooks on them, or asked for a gradient to be kept."""
        self.keeps_gradient = False
        self.gradient: Value = NONE
        """What `grad` has, where that is kept."""

    def children(self) -> Iterator[Value]:
        return iter(())

    def hand_out(self, cg: Codegen) -> None:
        """Push the tensor as it was made, with its hooks and the gradient that it has by now."""
        raise NotImplementedError

    @property
    def order(self) -> float:
        """The place in the order of what was computed, through which autograd goes backwards."""
        raise NotImplementedError

    def passed(self, frame: Frame, gradients: list[TensorValue | None]) -> list[TensorValue | None]:
        """What comes of the gradients of the leaves that pass the hooks."""
        raise NotImplementedError

    def refuse(self, capture: Capture, why: str) -> NoReturn:
        """Break the graph at the first hook; where there is none yet, have no history cut off so early."""
        if not self.has_hooks:
            raise NeedsCuts(None)
        capture.break_at(self.made_at, Unsupported(f"Tensor.register_hook() or retain_grad() {why}", "FJ107"))

    def check_unwritten(self, capture: Capture) -> None:
        """Break the graph at the first hook where the memory was written into since: of a view and what it is a view
        of, each has a new history then."""
        if [version_of(tensor.fake) for tensor in self.made] != self.versions:
            self.refuse(capture, "of what is written into")


class Cut(HistoryCut):
    """Where the history of a tensor with hooks of its own was cut off."""

    def __init__(self, tensor: TensorValue, made_at: int, nodes: set[fx.Node]) -> None:
        super().__init__([tensor], [tensor], made_at)
        self.nodes = nodes
        """Those that make the leaf."""
        self.hooks = HooksValue()

    @property
    def order(self) -> float:
        return sequence_number(self.made[0].fake)

    def children(self) -> Iterator[Value]:
        return iter((self.hooks, self.gradient))

    def passed(self, frame: Frame, gradients: list[TensorValue | None]) -> list[TensorValue | None]:
        (gradient,) = gradients
        assert gradient is not None
        for _, hook in self.hooks.entries:
            gradient = passed(frame, hook, gradient)
        if self.keeps_gradient:
            contiguous: dict[str, Value] = {"memory_format": ConstantValue(torch.contiguous_format)}
            graph = frame.capture.graph
            self.gradient = (
                graph.call("clone", [gradient], contiguous, True)
                if is_none(self.gradient)
                else graph.call(torch.add, [self.gradient, gradient])
            )
        return [gradient]

    def hand_out(self, cg: Codegen) -> None:
        cg.call_function(_hooked, self.made[0], self.hooks, ConstantValue(self.keeps_gradient), self.gradient)


def _table(*entries: Any) -> OrderedDict[int, Any]:
    return OrderedDict(zip(entries[::2], entries[1::2], strict=True))


def _hooked(
    tensor: torch.Tensor, hooks: OrderedDict[int, Any], keeps_gradient: bool, gradient: torch.Tensor | None
) -> torch.Tensor:
    """A tensor, with the hooks as `register_hook()` puts them on it, and a gradient that it keeps."""
    if hooks:
        tensor._backward_hooks = hooks
        tensor.grad_fn._register_hook_dict(tensor)  # type: ignore[union-attr]
    if keeps_gradient:
        tensor.retain_grad()
        tensor.grad = gradient
    return tensor


def sequence_number(fake: torch.Tensor) -> int:
    """The number of the operation that made a tensor, by which autograd orders a backward."""
    assert fake.grad_fn is not None
    number: int = fake.grad_fn._sequence_nr()
    return number


def can_be_cut(tensor: TensorValue) -> bool:
    """Whether a tensor has a history that can be cut off."""
    return (
        tensor.source is None
        and tensor.cls is torch.Tensor
        and tensor.copy_of is None
        and tensor.fake.grad_fn is not None
        and torch.is_grad_enabled()
    )


def is_used(graph: Graph, tensor: TensorValue) -> bool:
    """Whether something was made of a tensor, whose gradient would pass the tensor's hooks."""
    if any(made.fake is tensor.fake for cut in graph.cuts for made in cut.made):
        return True
    made = tensors_in([user.meta.get("val") for user in tensor.node.users])
    return any(fake.requires_grad and fake is not tensor.fake for fake in made)


def cut_off(graph: Graph, tensor: TensorValue, made_at: int) -> Cut:
    """Cut off the history of a tensor. `made_at`: the step of the capture that does."""
    leaf = leaf_over(graph, tensor)
    graph.leaves.append(tensor)
    cut = tensor.cut = Cut(tensor, made_at, {leaf.node.args[0], leaf.node})  # type: ignore[arg-type]
    graph.cuts.append(cut)
    tensor.node, tensor.fake = leaf.node, leaf.fake
    return cut


def leaf_over(graph: Graph, tensor: TensorValue) -> TensorValue:
    """A leaf of the graph over the memory of a tensor."""
    leaf = graph.call("detach", [tensor], is_method=True)
    assert isinstance(leaf, TensorValue)
    graph.make_leaf(leaf)
    return leaf


def cut_early(graph: Graph, node: fx.Node, result: Value) -> None:
    """Cut off the history of what a new node gives, where an earlier attempt has found that hooks are put on it once it
    is used."""
    assert graph.cuts_for is not None
    step = graph.step_of(node)
    if step is None or all(place.seq != step for place in graph.cuts_for):
        return
    number = _number_of(graph, node, step)
    parts = result.items if isinstance(result, (TupleValue, ListValue)) else [result]
    for item, part in enumerate([*parts]):
        if (
            ResultPlace(step, number, item) in graph.cuts_for
            and isinstance(part, TensorValue)
            and part.cut is None
            and can_be_cut(part)
        ):
            cut_off(graph, part, step)


def place_of(graph: Graph, tensor: TensorValue) -> ResultPlace | None:
    """Where a tensor was given the history that it has; None where that was by a write into memory that it shares."""
    node, item = tensor.node, 0
    nodes = {each: number for number, each in enumerate(graph.graph.nodes)}
    for writer in graph.writes.into(tensor.fake):
        if nodes[writer] > nodes[node]:
            if writer.meta.get("val") is not tensor.fake:
                return None
            node = writer
    if node.target is operator.getitem:
        origin, part = node.args
        if isinstance(origin, fx.Node) and isinstance(part, int) and isinstance(origin.meta.get("val"), (tuple, list)):
            node, item = origin, part
    step = graph.step_of(node)
    return None if step is None else ResultPlace(step, _number_of(graph, node, step), item)


def _number_of(graph: Graph, node: fx.Node, step: int) -> int:
    """The number of a node among those of its step, but for what cuts off histories."""
    of_cuts = set[fx.Node]().union(*(cut.nodes for cut in graph.cuts if isinstance(cut, Cut)))
    own = [each for each in graph.graph.nodes if graph.step_of(each) == step and each not in of_cuts]
    return own.index(node)
