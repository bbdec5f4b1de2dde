"""`register_hook()` and `retain_grad()` of what captured code computes.

The history of such a tensor is cut off: a leaf over its memory takes its place in the graph, so that what comes behind
leads to that. `backward()` in captured code asks for the leaf's gradient, has it pass the hooks, which are inlined, and
goes on with what comes of it from the tensor as it was made. Where something with a history that leads to the leaf
outlives the capture, the graph breaks at the first hook: gradients that are asked for outside would end there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from framejit.fakes.arguments import tensors_in
from framejit.fakes.metadata import version_of
from framejit.signals import NeedsStandIns, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.methods import BuiltinMethods, method
from framejit.values.tensors.gradients import REENTRANT, nodes_of
from framejit.values.tensors.hook_calls import passed
from framejit.values.tensors.tensor import METHODS, TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Capture, Codegen, Frame


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


class Cut:
    """Where the history of a tensor was cut off."""

    def __init__(self, tensor: TensorValue, made_at: int) -> None:
        self.tensor = tensor
        self.made = TensorValue(tensor.node, tensor.fake, tensor.cls)
        """The tensor as it was made, with its history."""
        self.version = version_of(tensor.fake)
        self.made_at = made_at
        """The step of the capture that cut."""
        self.hooks = HooksValue()
        self.keeps_gradient = False
        self.gradient: Value = NONE
        """What `grad` has, where that is kept."""

    @property
    def order(self) -> int:
        """The place in the order of what was computed, through which autograd goes backwards."""
        number: int = self.made.fake.grad_fn._sequence_nr()  # type: ignore[union-attr]
        return number

    def children(self) -> Iterator[Value]:
        return iter((self.hooks, self.gradient))

    def refuse(self, frame: Frame, why: str) -> NoReturn:
        """Break the graph at the first hook."""
        frame.capture.break_at(self.made_at, _refusal(why))

    def check_unwritten(self, capture: Capture) -> None:
        """Break the graph at the first hook where the memory was written into since: of a view and what it is a view
        of, each has a new history then."""
        if version_of(self.made.fake) != self.version:
            capture.break_at(self.made_at, _refusal("of what is written into"))

    def passed(self, frame: Frame, gradient: TensorValue) -> TensorValue:
        """What comes of a gradient that passes the hooks."""
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
        return gradient

    def hand_out(self, cg: Codegen) -> None:
        """Push the tensor as it was made, with its hooks and the gradient that it has by now."""
        cg.call_function(_hooked, self.made, self.hooks, ConstantValue(self.keeps_gradient), self.gradient)

    def check(self, cg: Codegen) -> None:
        """Break the graph at the first hook, should gradients be asked for outside that lead here."""
        self.check_unwritten(cg.capture)
        if _is_led_to(cg, self.tensor.fake):
            cg.capture.break_at(self.made_at, _refusal("of what a result's gradients go through"))


def check_hooks(cg: Codegen) -> None:
    """See to it that no gradients are asked for outside that lead to leaves of the graph."""
    graph = cg.capture.graph
    for cut in graph.cuts:
        cut.check(cg)
    for made_at, made in graph.reentrant:
        if any(_is_led_to(cg, fake) for fake in made):
            cg.capture.break_at(made_at, Unsupported(REENTRANT, "FJ107"))
    if any(value.toggled is not None and _is_led_to(cg, value.toggled.own_leaf()) for value in graph.stand_ins):
        raise NeedsStandIns(None)


def _is_led_to(cg: Codegen, tensor: torch.Tensor) -> bool:
    """Whether a gradient that is asked for outside may lead to a tensor of the graph."""
    results = [value.fake for value in cg.outputs]
    written = [value.fake for value in cg.capture.graph.inputs if value.fake is not tensor]
    node = get_gradient_edge(tensor).node
    return any(
        fake is tensor or any(found is node for found in nodes_of([fake])) and not _is_spent(fake)
        for fake in (*results, *written)
        if fake.requires_grad
    )


def _is_spent(fake: torch.Tensor) -> bool:
    """Whether a backward through a result has let go of what it kept, so that autograd refuses another one."""
    seen: set[Any] = set()
    waiting: list[Any] = [fake.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for name in dir(type(node)):
            if name.startswith("_saved_"):
                try:
                    getattr(node, name)
                except RuntimeError as e:
                    if "already been freed" in str(e):
                        return True
        waiting += [following for following, _ in node.next_functions]
    return False


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


def _refusal(why: str) -> Unsupported:
    return Unsupported(f"Tensor.register_hook() or retain_grad() {why}", "FJ107")


def _register_hook(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor, hooks = args[0], [*args[1:], *kwargs.values()]
    assert isinstance(tensor, TensorValue)
    if len(hooks) != 1 or not {*kwargs} <= {"hook"}:
        return None
    cut = _cut(frame, tensor)
    if cut is None:
        return None
    handle = frame.call(from_python(RemovableHandle), [cut.hooks], {})
    cut.hooks.add(frame, handle.getattr(frame, "id"), hooks[0])
    return handle


def _retain_grad(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    tensor = args[0]
    assert isinstance(tensor, TensorValue)
    cut = None if len(args) > 1 or kwargs else _cut(frame, tensor)
    if cut is None:
        return None
    frame.capture.effects.changed(cut.hooks)
    cut.keeps_gradient = True
    return NONE


METHODS["register_hook"] = _register_hook
METHODS["retain_grad"] = _retain_grad


def _cut(frame: Frame, tensor: TensorValue) -> Cut | None:
    """Cut off the history of a tensor, or find where that was done; None where it can't be."""
    if tensor.cut is not None:
        return tensor.cut
    graph, fake = frame.capture.graph, tensor.fake
    if (
        tensor.source is not None
        or tensor.cls is not torch.Tensor
        or tensor.copy_of is not None
        or fake.grad_fn is None
        or frame.capture.transforms
        or frame.capture.overrides.modes
        or not frame.capture.takes_gradients
        or not torch.is_grad_enabled()
    ):
        return None
    if any(each.requires_grad for each in tensors_in([result.meta.get("val") for result in tensor.node.users])):
        return None  # whose gradients pass the hooks, too
    made_at = frame.capture.seq
    leaf = graph.call("detach", [tensor], is_method=True)
    assert isinstance(leaf, TensorValue)
    graph.make_leaf(leaf)
    graph.leaves.append(tensor)
    cut = tensor.cut = Cut(tensor, made_at)
    graph.cuts.append(cut)
    tensor.node, tensor.fake = leaf.node, leaf.fake
    return cut
