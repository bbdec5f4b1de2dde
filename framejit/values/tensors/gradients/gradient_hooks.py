"""`register_hook()` and `retain_grad()` of what captured code computes.

The history of such a tensor is cut off (`cuts.py`). `backward()` in captured code asks for the leaf's gradient, has it
pass the hooks, which are inlined, and goes on with what comes of it from the tensor as it was made. Where something
with a history that leads to the leaf outlives the capture, the graph breaks at the first hook: gradients that are asked
for outside would end there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.graph import get_gradient_edge
from torch.utils.hooks import RemovableHandle

from framejit.signals import NeedsCuts, NeedsStandIns, Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE
from framejit.values.tensors.gradients.backward import REENTRANT, nodes_of
from framejit.values.tensors.gradients.cuts import Cut, can_be_cut, cut_off, is_used, place_of
from framejit.values.tensors.tensor import METHODS, TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Codegen, Frame


def check_hooks(cg: Codegen) -> None:
    """See to it that no gradients are asked for outside that lead to leaves of the graph."""
    graph = cg.capture.graph
    if graph.lacking_cuts:
        raise NeedsCuts(frozenset(graph.lacking_cuts))
    for cut in graph.cuts:
        cut.check_unwritten(cg.capture)
        if any(_is_led_to(cg, leaf.fake) for leaf in cut.leaves):
            cut.refuse(cg.capture, "of what a result's gradients go through")
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
    """Cut off the history of a tensor for its first hook, or find where that was done; None where it can't be."""
    capture, graph, cut = frame.capture, frame.capture.graph, tensor.cut
    if cut is None:
        if (
            not can_be_cut(tensor)
            or graph.is_apart
            or capture.transforms
            or capture.overrides.modes
            or not capture.takes_gradients
        ):
            return None
        if is_used(graph, tensor):
            place = place_of(graph, tensor)
            if place is None or graph.cuts_for is None or place in graph.cuts_for:
                return None
            graph.lacking_cuts.add(place)
        cut = cut_off(graph, tensor, capture.seq)
    elif not cut.has_hooks:
        cut.check_unwritten(capture)
        cut.made_at = capture.seq
    assert isinstance(cut, Cut)
    cut.has_hooks = True
    return cut
