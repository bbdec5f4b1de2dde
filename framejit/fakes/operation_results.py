"""What operations give on fakes, worked out once: the layers of a model ask the same questions again.

Torch keeps results for fakes itself, but finding one takes it longer than many an operation takes, and for symbols that
are not its own it keeps none. Here a result is found by the operation, the metadata of its tensors, and its other
arguments. Kept are only tensors that are new: with memory of their own, or other views of an argument's. Before a
result is kept, another is made in its place and compared with it.

Symbolic sizes are compared as expressions: no question about them is asked here. What was asked when a result was
worked out is known by the conditions since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, Final, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from framejit.fakes.dropped_warnings import without_warning_of
from framejit.fakes.new_fakes import fake_of
from framejit.fakes.size_keys import (
    NotKept,
    SizeKey,
    argument_key,
    conditions_of,
    size_key,
    size_keys,
    sizes_of,
    view_of,
)
from framejit.symbols.conditions import Conditions

_LOOK_AT_MEMORY: Final = frozenset(
    ("as_strided_copy", "as_strided_scatter", "storage_offset", "set", "resize", "lift", "lift_fresh", "tensor")
)
"""Operations that ask more of a tensor than the metadata by which results are found."""


class _Layout(NamedTuple):
    sizes: tuple[SizeKey, ...]
    strides: tuple[SizeKey, ...]
    dtype: torch.dtype
    device: torch.device
    viewed: int | None
    """Whose memory the result lies in: an argument's, by its position among the tensors given; None if it has its
    own."""
    offset: SizeKey
    conditions: Conditions | None
    """The conditions that its symbolic sizes belong to, if it has some."""


_Kept = tuple[list[_Layout], Callable[[list[torch.Tensor]], Any] | None]
"""What the result's tensors are, and what makes the result of them if it is not just one."""


def empty_fake(
    mode: FakeTensorMode, sizes: Sequence[Any], strides: Sequence[Any], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A fake with these sizes and strides, as `torch.empty_strided` gives under the mode, but without the way through
    the dispatcher."""
    with without_warning_of(dtype):
        return fake_of(mode, torch.empty_strided(sizes, strides, dtype=dtype, device="meta"), device)


class OperationResults:
    """The results that were worked out under one mode."""

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._known: dict[Any, _Kept] = {}

    def forget(self) -> None:
        """Something has changed that results may depend on."""
        self._known.clear()

    def get(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """The result of an operation, by `compute` if it has to be worked out."""
        if not _depends_on_metadata(func):
            return compute()
        given: list[torch.Tensor] = []
        try:
            metadata = partial(_metadata, given=given)
            parts = argument_key(args, metadata), argument_key(tuple(kwargs.items()), metadata) if kwargs else None
        except NotKept:
            return compute()
        key = func, torch.get_default_dtype(), torch.is_inference_mode_enabled(), *parts
        known = self._known.get(key)
        if known is None:
            result = compute()
            kept = self._kept(result, given)
            if kept is not None:
                self._known[key] = kept
            return result
        layouts, kind = known
        if kind is None:
            return self._made(layouts[0], given)
        return kind([self._made(layout, given) for layout in layouts])

    def _kept(self, result: Any, given: list[torch.Tensor]) -> _Kept | None:
        kind = None if isinstance(result, torch.Tensor) else type(result)
        if kind not in (None, tuple, list):
            return None
        fakes: list[Any] = [result] if kind is None else list(result)
        storages = [tensor.untyped_storage()._cdata for tensor in given]
        own: set[int] = set()
        layouts: list[_Layout] = []
        for fake in fakes:
            if type(fake) is not FakeTensor or any(fake is tensor for tensor in given):
                return None
            storage = fake.untyped_storage()._cdata
            viewed = storages.index(storage) if storage in storages else None
            if storage in own:  # two of the results share memory
                return None
            if viewed is None:
                own.add(storage)
            try:
                offset = size_key(fake.storage_offset())
                layout = _Layout(
                    size_keys(fake.shape), size_keys(fake.stride()), fake.dtype, fake.fake_device, viewed, offset,
                    conditions_of(fake),
                )
                if (viewed is None and layout.offset != 0) or _facts(self._made(layout, given)) != _facts(fake):
                    return None
            except NotKept:
                return None
            layouts.append(layout)
        return layouts, kind

    def _made(self, layout: _Layout, given: list[torch.Tensor]) -> torch.Tensor:
        sizes: Any
        strides: Any
        offset: Any
        sizes, strides, dtype, device, viewed, offset, conditions = layout
        if conditions is not None:
            sizes, strides, (offset,) = (sizes_of(kept, conditions) for kept in (sizes, strides, (offset,)))
        if viewed is None:
            return empty_fake(self._mode, sizes, strides, dtype, device)
        if conditions is not None:  # `set_` would make the storage as small as the view
            return fake_of(self._mode, view_of(given[viewed], sizes, strides, offset), device)
        view = torch.empty(0, dtype=dtype, device="meta")
        with torch.no_grad():
            view.set_(given[viewed].untyped_storage(), offset, sizes, strides)
        return fake_of(self._mode, view, device)


@cache
def _depends_on_metadata(func: Any) -> bool:
    """Whether the metadata of an operation's results is determined by that of its arguments."""
    if (
        not isinstance(func, torch._ops.OpOverload)
        or func.namespace != "aten"
        or func._schema.is_mutable
        or func._opname in _LOOK_AT_MEMORY
    ):
        return False
    tags = (
        torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view,
        torch.Tag.nondeterministic_seeded,
    )
    return bool(func._schema.returns) and not any(tag in func.tags for tag in tags)


def _metadata(fake: Any, given: list[torch.Tensor]) -> Any:
    """Adds the fake to `given`."""
    given.append(fake)
    # where a view begins is its argument's place and its own
    sizes, strides, offset = fake.shape, fake.stride(), fake.storage_offset()
    if fake._has_symbolic_sizes_strides:
        sizes, strides, offset = size_keys(sizes), size_keys(strides), size_key(offset)
    return sizes, strides, fake.dtype, fake.fake_device, offset, fake.requires_grad, fake.is_inference()


def _facts(fake: Any) -> tuple[Any, ...]:
    """What tells one new fake from another."""
    return (
        (
            size_keys(fake.shape), size_keys(fake.stride()), size_key(fake.storage_offset()), fake.dtype,
            fake.fake_device, fake.layout,
        ),
        (
            fake.is_conj(), fake.is_neg(), fake.requires_grad, size_key(fake.untyped_storage().nbytes()),
            fake.is_inference(), fake.is_leaf,
        ),
        (torch._C._dispatch_keys(fake).raw_repr(), fake.constant, fake.pytype, fake.dispatch_keys, fake.real_tensor),
    )
