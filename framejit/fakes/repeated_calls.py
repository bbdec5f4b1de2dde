"""What calls of torch's functions give on fakes, worked out once in a capture: the layers of a model ask the same
questions again.

What single operations give is kept, too (`operation_results.py`), but a function is several of them, each of which goes
through the dispatcher. Here whole calls are found again by the function, the metadata of its tensors, and its other
arguments. Only results are kept that new tensors with memory of their own can stand for: no views of arguments, nothing
with a gradient history; or it is an argument itself. Before a result is kept, a tensor is made in its place and
compared with it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from framejit import _native as native
from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_checks import only_checks_data
from framejit.fakes.operation_kinds import LOOKS_AT_PLACE, name_of
from framejit.fakes.operation_results import empty_fake
from framejit.fakes.size_keys import NotKept, SizeKey, argument_key, conditions_of, size_key, size_keys, sizes_of
from framejit.guards import tensor_layout  # noqa: F401  sets up the reading of the thread's state
from framejit.symbols.conditions import Conditions

_FUNCTIONS: Final = ("torch.nn.functional", "torch.functional")
"""Modules of Python functions that look at nothing but their arguments and the thread's state."""


class _Layout(NamedTuple):
    """A result that has memory of its own."""

    sizes: tuple[SizeKey, ...]
    strides: tuple[SizeKey, ...]
    dtype: torch.dtype
    device: torch.device
    shown: tuple[tuple[SizeKey, ...], tuple[SizeKey, ...], SizeKey] | None
    """Sizes, strides and place of the result in what lies in that memory, if the result is a view of it."""
    conditions: Conditions | None
    """The conditions that its symbolic sizes belong to, if it has some."""


class _Kept(NamedTuple):
    parts: tuple[_Layout | int, ...]
    """What the result's tensors are; or which argument is the result, by its position among the tensors given."""
    kind: Callable[[list[torch.Tensor]], Any] | None
    """Makes the result of its parts, if it is not a tensor."""


class RepeatedCalls:
    """The results of calls in one capture, by what they depend on."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._of_states: list[tuple[native.State, dict[Any, _Kept]]] = []

    def forget(self) -> None:
        """Something has changed that calls may depend on."""
        self._of_states.clear()

    def key(self, target: Any, is_method: bool, args: Any, kwargs: Any) -> Any:
        """A key of all that a call's result depends on besides the thread's state; None if it has none."""
        try:
            if not _depends_on_arguments(target, is_method):
                return None
            return target, is_method, argument_key(args, _metadata), argument_key(tuple(kwargs.items()), _metadata)
        except (NotKept, TypeError):  # a target that has no hash
            return None

    def known(self, key: Any, args: Any, kwargs: Any) -> Any:
        """The result of the call, or None."""
        kept = self._now().get(key)
        if kept is None:
            return None
        made = [
            self._made(part) if isinstance(part, _Layout) else tensors_given(args, kwargs)[part] for part in kept.parts
        ]
        return made[0] if kept.kind is None else kept.kind(made)

    def keep(self, key: Any, result: Any, given: list[torch.Tensor]) -> None:
        """The result of a call that wrote nothing; `given` are its arguments."""
        position = next((position for position, tensor in enumerate(given) if tensor is result), None)
        if position is not None:
            self._now()[key] = _Kept((position,), None)
            return
        parts, kind = _taken_apart(result)
        storages = {tensor.untyped_storage()._cdata for tensor in given}
        layouts = []
        for part in parts:
            if type(part) is not FakeTensor or part.requires_grad or part.untyped_storage()._cdata in storages:
                return
            storages.add(part.untyped_storage()._cdata)
            try:
                layout = _layout(part)
                if layout is None or not is_like(part, self._made(layout)):
                    return
            except NotKept:
                return
            layouts.append(layout)
        if layouts:
            self._now()[key] = _Kept(tuple(layouts), kind)

    def _now(self) -> dict[Any, _Kept]:
        for state, calls in self._of_states:
            if native.state_matches(state):
                return calls
        self._of_states.append((native.snapshot_state(), {}))
        return self._of_states[-1][1]

    def _made(self, layout: _Layout) -> torch.Tensor:
        conditions = layout.conditions
        sizes, strides = sizes_of(layout.sizes, conditions), sizes_of(layout.strides, conditions)
        base = empty_fake(self._mode, sizes, strides, layout.dtype, layout.device)
        if layout.shown is None:
            return base
        shown, steps, first = layout.shown
        with self._mode:
            return base.as_strided(
                sizes_of(shown, conditions), sizes_of(steps, conditions), *sizes_of((first,), conditions)
            )


def tensors_given(args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors among the arguments of a call."""
    return list(tensors_in((args, tuple(kwargs.values()))))


def _depends_on_arguments(target: Any, is_method: bool) -> bool:
    """Whether the call is one of torch's own functions, whose results have metadata that the arguments' metadata and
    the thread's state determine."""
    if isinstance(target, types.FunctionType):  # what is kept of others would keep alive what they hold
        home = target.__module__
        return home in _FUNCTIONS and target.__globals__.get("__name__") == home and _is_kind_to_keep(target, is_method)
    return isinstance(target, str | types.BuiltinFunctionType) and _is_kind_to_keep(target, is_method)


@cache
def _is_kind_to_keep(target: str | types.FunctionType | types.BuiltinFunctionType, is_method: bool) -> bool:
    name = name_of(target)
    # what ends so changes its argument
    if only_checks_data(target) or name in LOOKS_AT_PLACE or (name.endswith("_") and not name.endswith("__")):
        return False
    if is_method:
        return isinstance(getattr(torch.Tensor, name, None), types.MethodDescriptorType | types.WrapperDescriptorType)
    if isinstance(target, types.BuiltinFunctionType):
        home, owner = target.__module__ or "", target.__self__
        return (
            home == "_operator"
            or home.startswith("torch")
            or getattr(owner, "__name__", "").startswith("torch")
            or type(owner) is type
        )
    return isinstance(target, types.FunctionType)


def _metadata(fake: Any) -> Any:
    sizes, strides = fake.shape, fake.stride()
    if fake._has_symbolic_sizes_strides:
        sizes, strides = size_keys(sizes), size_keys(strides)
    return sizes, strides, fake.dtype, fake.fake_device, fake.requires_grad, fake.is_inference()


def _taken_apart(result: Any) -> tuple[list[Any], Callable[[list[torch.Tensor]], Any] | None]:
    if isinstance(result, torch.Tensor):
        return [result], None
    kind = type(result)
    if kind is tuple or kind is list or kind.__module__ == "torch.return_types":
        return list(result), kind
    return [], None


def _layout(fake: Any) -> _Layout | None:
    if fake.layout != torch.strided or fake.is_conj() or fake.is_neg():
        return None
    if fake.is_inference() or not fake._is_view():
        return _Layout(
            size_keys(fake.shape), size_keys(fake.stride()), fake.dtype, fake.fake_device, None, conditions_of(fake)
        )
    base = fake._base
    if type(base) is not FakeTensor or base.requires_grad:
        return None
    shown = size_keys(fake.shape), size_keys(fake.stride()), size_key(fake.storage_offset())
    return _Layout(
        size_keys(base.shape), size_keys(base.stride()), base.dtype, base.fake_device, shown,
        conditions_of(fake) or conditions_of(base),
    )


def is_like(fake: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether nothing that can be asked of two fakes tells them apart but that they are two."""
    return all(_facts(a) == _facts(b) for a, b in zip(_with_base(fake), _with_base(other), strict=True))


def _with_base(fake: torch.Tensor) -> Iterator[torch.Tensor | None]:
    yield fake
    yield fake._base if not fake.is_inference() and fake._is_view() else None


def _facts(fake: Any) -> tuple[Any, ...] | None:
    if fake is None:
        return None
    is_view = not fake.is_inference() and fake._is_view()
    return (
        (
            size_keys(fake.shape), size_keys(fake.stride()), size_key(fake.storage_offset()), fake.dtype,
            fake.fake_device, fake.layout, fake.is_conj(), fake.is_neg(),
        ),
        (
            size_key(fake.untyped_storage().nbytes()), fake.requires_grad, fake.is_leaf, fake.is_inference(),
            None if fake.is_inference() else fake._version,
        ),
        (
            is_view, torch._C._autograd._get_creation_meta(fake) if is_view else None,
            torch._C._dispatch_keys(fake).raw_repr(), fake.constant, fake.pytype,
        ),
    )
