"""Sizes, strides and offsets of fakes as what can be compared and kept: symbolic ones as expressions, about which no
question is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression
from framejit.symbols.sym_node import IntegerNode, symbolic

_PLAIN: Final = frozenset((bool, int, str, type(None), torch.dtype, torch.device, torch.memory_format, torch.layout))

SizeKey = int | Expression
"""A size, stride or offset: its number, or what is known of one that is symbolic."""


class NotKept(Exception):
    """There is something that says nothing by which a result could be found."""


def size_key(size: Any) -> SizeKey:
    """A size, stride or offset of a fake; what is known to be equal is the same expression. Raises NotKept for symbols
    of torch's own."""
    if type(size) is int:
        return size
    node = size.node if type(size) is torch.SymInt else None
    if not isinstance(node, IntegerNode):
        raise NotKept
    expression = node.conditions.simplified(node.expression)
    return expression if expression.value is None else expression.value


def size_keys(sizes: Sequence[Any]) -> tuple[SizeKey, ...]:
    """The keys of several sizes or strides."""
    return tuple(map(size_key, sizes))


def sizes_of(kept: Sequence[SizeKey], conditions: Conditions | None) -> list[Any]:
    """The sizes that `size_keys` made these keys of. `conditions` are those of the symbolic ones."""
    return [
        symbolic(one, conditions) if isinstance(one, Expression) and conditions is not None else one for one in kept
    ]


def conditions_of(fake: Any) -> Conditions | None:
    """The conditions of a fake's symbolic sizes, if it has some."""
    if not fake._has_symbolic_sizes_strides:
        return None
    return next(
        (
            size.node.conditions
            for size in (*fake.shape, *fake.stride(), fake.storage_offset())
            if type(size) is torch.SymInt
        ),
        None,
    )


def argument_key(value: Any, of_fake: Callable[[Any], Any]) -> Any:
    """A hashable key of a call's argument: arguments with equal keys give results with the same metadata. Of a fake it
    is what `of_fake` gives. Raises NotKept for an argument that has no such key."""
    kind = type(value)
    if kind is FakeTensor:
        if value.is_conj() or value.is_neg() or value.layout != torch.strided:
            raise NotKept
        if value.constant is None:
            return of_fake(value)
        if value.constant.numel():  # which results may depend on
            raise NotKept
        return "no elements", of_fake(value)
    if kind is torch.SymInt:
        return kind, size_key(value)
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, repr(value)
    if kind is tuple or kind is list or kind is torch.Size:
        return kind, *[argument_key(item, of_fake) for item in value]
    raise NotKept


def view_of(fake: Any, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> torch.Tensor:
    """The view of a fake with these sizes, strides and offset (all in elements), as a tensor on the meta device."""
    with in_kernel_invocation_manager(fake.fake_mode):
        view: torch.Tensor = torch.ops.aten.as_strided.default(fake, sizes, strides, offset)
    return view
