"""`requires_grad_()` in captured code: of tensors that it has made, and of parameters that it freezes and thaws.

What existed before keeps its state until the graph has run: then it is set, like any attribute. In the graph a view
without history stands for a parameter that is frozen, and a leaf over its memory for one that was frozen before. Such
a leaf is another one than the program's own, so that gradients may only be asked for inside; where a result has a
history that leads to it, the graph breaks at the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.late_dataclass import dataclass
from framejit.signals import Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.tensors.gradients.backward import leaf_fakes
from framejit.values.tensors.tensor import METHODS, TensorValue

if TYPE_CHECKING:
    from torch import fx

    from framejit.values.context import Codegen, Frame

_PLAIN = (torch.Tensor, torch.nn.Parameter)
Form = tuple["fx.Node", torch.Tensor]
"""A node of the graph with its fake."""


@dataclass(eq=False)
class Toggled:
    """What stands for a tensor that is frozen and thawed in captured code."""

    leaf: Form | None = None
    """While it requires gradients."""
    frozen: Form | None = None
    """While it requires none."""
    made_at: int | None = None
    """The step at which a leaf was made that is not the program's own."""

    def own_leaf(self) -> torch.Tensor:
        assert self.leaf is not None
        return self.leaf[1]

    def check(self, cg: Codegen) -> None:
        """Breaks the graph at the change where results would lead to a leaf that is not the program's own."""
        if self.made_at is None or self.leaf is None:
            return
        own = self.leaf[1]
        results = [value.fake for value in (*cg.outputs, *cg.capture.graph.inputs) if value.fake is not own]
        if any(fake is own for fake in leaf_fakes([fake for fake in results if fake.requires_grad])):
            cg.capture.break_at(
                self.made_at, Unsupported("Tensor.requires_grad_() of what a result's gradients go to", "FJ107")
            )


def _requires_grad(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    tensor = args[0]
    assert isinstance(tensor, TensorValue)
    if frame.capture.transforms:
        raise Unsupported("Tensor.requires_grad_() in a function that torch.func transforms", "FJ107")
    given = [*args[1:], *kwargs.values()]
    if len(given) > 1 or not {*kwargs} <= {"requires_grad"}:
        raise Unsupported("Tensor.requires_grad_() with other arguments than its own", "FJ112")
    wanted = realize(frame, given[0]).constant() if given else True
    if wanted == tensor.fake.requires_grad:
        return tensor
    if (
        type(wanted) is not bool
        or tensor.cls not in _PLAIN
        or tensor.made_as is not None
        or tensor.copy_of is not None
        or tensor.fake.is_inference()
        or not frame.capture.takes_gradients
    ):
        raise Unsupported("Tensor.requires_grad_() that changes the tensor", "FJ107")
    if tensor.source is not None:
        _toggle(frame, tensor, wanted)
    elif wanted and tensor.cls is torch.Tensor:
        frame.capture.graph.make_leaf(tensor)
        frame.capture.graph.leaves.append(tensor)
    else:
        raise Unsupported("Tensor.requires_grad_() that changes the tensor", "FJ107")
    return tensor


METHODS["requires_grad_"] = _requires_grad


def _toggle(frame: Frame, tensor: TensorValue, wanted: bool) -> None:
    graph = frame.capture.graph
    if not tensor.is_leaf(frame) or not (tensor.fake.is_floating_point() or tensor.fake.is_complex()):
        raise Unsupported("Tensor.requires_grad_() that raises", "FJ104")
    toggled = tensor.toggled = tensor.toggled or Toggled()
    if tensor.fake.requires_grad:
        toggled.leaf = tensor.node, tensor.fake
    else:
        toggled.frozen = tensor.node, tensor.fake
    frame.capture.effects.changed(tensor)
    form = toggled.leaf if wanted else toggled.frozen
    if form is None:
        made = graph.call("detach", [tensor], is_method=True)
        assert isinstance(made, TensorValue)
        if wanted:
            graph.make_leaf(made)
            toggled.made_at = frame.capture.seq
        form = made.node, made.fake
        if wanted:
            toggled.leaf = form
        else:
            toggled.frozen = form
    tensor.node, tensor.fake = form
    tensor.attrs["requires_grad"] = ConstantValue(wanted)


def as_it_was(fake: torch.Tensor) -> torch.Tensor:
    """A fake without gradients like one whose are asked for: a view of the same base where that is one, of which
    autograd allows the same."""
    base = fake._base if fake._is_view() else None
    if base is None:
        return fake.detach()
    view = base.as_strided(fake.shape, fake.stride(), fake.storage_offset())
    torch._C._autograd._set_creation_meta(view, torch._C._autograd._get_creation_meta(fake))
    return view
