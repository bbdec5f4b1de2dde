"""Hooks of a module's backward (`register_full_backward_hook()`), as torch puts them on: two operations that compute
nothing, one that what is given to the module goes through, one that what it gives does.

Where captured code has the backward, too, the history of these tensors is cut off there: the gradients of all of them
pass the hooks together. Elsewhere the graph breaks where the module is called.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch.utils.hooks import BackwardHook

from framejit.signals import NeedsCuts, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.handlers import handles
from framejit.values.methods import BuiltinMethods, method
from framejit.values.tensors.gradients.cuts import HistoryCut, leaf_over, sequence_number
from framejit.values.tensors.gradients.hook_calls import passed_together
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame

_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _NodeCut(HistoryCut):
    """Where the history of what goes through one of these operations was cut off."""

    def __init__(
        self, tensors: list[TensorValue], leaves: list[TensorValue], made_at: int, all_tensors: list[TensorValue],
        number: int,
    ) -> None:
        super().__init__(tensors, leaves, made_at)
        self.all_tensors = all_tensors
        """Those without gradients, too."""
        self.number = number
        """That of the operation behind it."""
        self.hooks: list[Value] = []

    @property
    def order(self) -> float:
        return self.number - 0.5

    def passed(self, frame: Frame, gradients: list[TensorValue | None]) -> list[TensorValue | None]:
        """Autograd gives its hooks zeros for gradients that go out where none has come in."""
        found = iter(gradients)
        coming: list[Value] = []
        for tensor in self.all_tensors:
            gradient = next(found) if tensor.fake.requires_grad else None
            coming.append(NONE if gradient is None else gradient)
        contiguous: dict[str, Value] = {"memory_format": ConstantValue(torch.contiguous_format)}
        going = [
            gradient
            if isinstance(gradient, TensorValue)
            else frame.capture.graph.call(torch.zeros_like, [_without_history(frame, tensor)], contiguous)
            for gradient, tensor in zip(coming, self.all_tensors, strict=True)
        ]
        for hook in self.hooks:
            going = passed_together(frame, hook, going, coming)
        return [
            gradient if isinstance(gradient, TensorValue) else None
            for gradient, tensor in zip(going, self.all_tensors, strict=True)
            if tensor.fake.requires_grad
        ]


class _NodeValue(BuiltinMethods):
    """The operation, as one of autograd's nodes, which hooks are put on."""

    mutable = True
    never_missed = True  # while a backward may come the history holds it

    def __init__(self, cut: _NodeCut) -> None:
        self.cut = cut

    def python_type(self) -> type:
        return torch.nn.modules._functions.BackwardHookFunction._backward_cls

    @method("register_hook")
    def _register(self, frame: Frame, hook: Value) -> Value:
        frame.capture.effects.changed(self)
        self.cut.hooks.append(hook)
        return NONE

    def children(self) -> Iterator[Value]:
        return iter(self.cut.hooks)

    def replay(self, cg: Codegen) -> None:
        """Its hooks are called in the graph or not at all."""


@handles(BackwardHook._apply_on_tensors)
def _apply_on_tensors(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    graph = frame.capture.graph
    hook, hooked, given = (realize(frame, arg) for arg in args)
    if kwargs or not isinstance(given, TupleValue) or given.cls is not tuple:
        raise Unsupported("hooks of the backward of a module that is given, or gives, something unusual", "FJ107")
    items = [realize(frame, item) for item in given.items]
    places = [place for place, item in enumerate(items) if isinstance(item, TensorValue)]
    tensors = [item for item in items if isinstance(item, TensorValue)]
    wanted = [tensor for tensor in tensors if tensor.fake.requires_grad]
    if not wanted or not torch.is_grad_enabled():
        return TupleValue([given, NONE])
    if (
        graph.cuts_for is None
        or graph.is_apart
        or frame.capture.transforms
        or frame.capture.overrides.modes
        or not frame.capture.takes_gradients
        or any(tensor.cls not in _PLAIN or tensor.copy_of is not None for tensor in tensors)
    ):
        raise Unsupported("hooks of the backward of a module, which no backward in the graph leads to", "FJ107")
    n_inputs, places_given = (realize(frame, hook.getattr(frame, name)) for name in ("n_inputs", "input_tensors_index"))
    if n_inputs.constant() >= 0 and is_none(places_given):
        raise NeedsCuts(None)  # torch is going to warn in the backward that nothing it was given wants gradients
    leaves = [leaf_over(graph, tensor) for tensor in wanted]
    results: dict[int, Value] = {}
    found = iter(leaves)
    for place, tensor in zip(places, tensors, strict=True):
        made_of = next(found) if tensor.fake.requires_grad else tensor
        results[place] = graph.call("view_as", [made_of, made_of], is_method=True)
    first = next(made for made in results.values() if isinstance(made, TensorValue) and made.fake.requires_grad)
    cut = _NodeCut(wanted, leaves, frame.capture.seq, tensors, sequence_number(first.fake))
    for leaf in leaves:
        leaf.cut = cut
        graph.leaves.append(leaf)
    graph.cuts.append(cut)
    frame.call(hooked, [_NodeValue(cut)], {})
    behind = [results.get(place, item) for place, item in enumerate(items)]
    return TupleValue([TupleValue(behind), ListValue([ConstantValue(place) for place in places])])


def _without_history(frame: Frame, tensor: TensorValue) -> Value:
    return frame.capture.graph.call("detach", [tensor], is_method=True) if tensor.fake.requires_grad else tensor
