"""Hooks of gradients as autograd calls them, inlined."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from framejit.signals import Raised, Unsupported
from framejit.values.base import Value, realize
from framejit.values.constant import is_none
from framejit.values.containers.tuples import TupleValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame


_SOMETHING_ELSE = "a hook of gradients that gives something else than a gradient of its tensor"


def passed(frame: Frame, hook: Value, gradient: TensorValue) -> TensorValue:
    """What a hook makes of a gradient."""
    given = _called(frame, hook, gradient)
    if is_none(given):
        return gradient
    if not isinstance(given, TensorValue) or given.cls is not torch.Tensor or not _alike(given.fake, gradient.fake):
        raise Unsupported(_SOMETHING_ELSE, "FJ107")
    return given


def passed_together(frame: Frame, hook: Value, going: list[Value], coming: list[Value]) -> list[Value]:
    """What a hook of one of autograd's nodes makes of the gradients that go out of it. `coming`: those that come in."""
    given = _called(frame, hook, TupleValue(going), TupleValue(coming))
    if is_none(given):
        return going
    if not isinstance(given, TupleValue) or given.cls is not tuple or len(given.items) != len(going):
        raise Unsupported(_SOMETHING_ELSE, "FJ107")
    made = [realize(frame, item) for item in given.items]
    for before, behind in zip(going, made, strict=True):
        if not is_none(behind) and (
            not isinstance(behind, TensorValue)
            or behind.cls is not torch.Tensor
            or not isinstance(before, TensorValue)
            or not _alike(behind.fake, before.fake)
        ):
            raise Unsupported(_SOMETHING_ELSE, "FJ107")
    return made


def told(frame: Frame, hook: Value, leaf: TensorValue) -> None:
    """Call a hook with a leaf whose gradient has come."""
    if not is_none(_called(frame, hook, leaf)):
        raise Unsupported("a hook behind the adding up of a gradient that returns something", "FJ107")


def _called(frame: Frame, hook: Value, *given: Value) -> Value:
    with _without_gradients(frame):
        try:
            return realize(frame, frame.call(hook, [*given], {}))
        except Raised as e:
            raise Unsupported(f"a hook of gradients that raises {e.value.cls.__name__}", "FJ107") from None


@contextmanager
def _without_gradients(frame: Frame) -> Iterator[None]:
    """The block captures what autograd calls, in the mode that it has then."""
    change, enabled = frame.capture.change_state, torch.is_grad_enabled()
    if enabled:
        change(torch._C._set_grad_enabled, torch.is_grad_enabled, (False,), 0)
    try:
        yield
    finally:
        if enabled:
            change(torch._C._set_grad_enabled, torch.is_grad_enabled, (True,), 0)


def _alike(given: torch.Tensor, gradient: torch.Tensor) -> bool:
    what = "shape", "dtype", "device", "layout", "requires_grad"
    return all(getattr(given, name) == getattr(gradient, name) for name in what)
