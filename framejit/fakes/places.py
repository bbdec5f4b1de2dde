"""Sizes, strides and offsets of fakes as what can be compared and kept: open ones as expressions, about which no question is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import in_kernel_invocation_manager

from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression
from framejit.symbols.node import IntegerNode, symbolic

Place = int | Expression
"""A size, stride or offset: its number, or what is known of one that is open."""


class NotKept(Exception):
    """There is something that says nothing by which a result could be found."""


def place(size: Any) -> Place:
    """A size, stride or offset of a fake; what is known to be equal is the same expression. Raises NotKept for symbols of torch's own."""
    if type(size) is int:
        return size
    node = size.node if type(size) is torch.SymInt else None
    if not isinstance(node, IntegerNode):
        raise NotKept
    expression = node.conditions.simplified(node.expression)
    return expression if expression.value is None else expression.value


def places(sizes: Sequence[Any]) -> tuple[Place, ...]:
    """Several of them."""
    return tuple(map(place, sizes))


def sizes_of(kept: Sequence[Place], conditions: Conditions | None) -> list[Any]:
    """What `places` was given. `conditions` are those of the open ones."""
    return [symbolic(one, conditions) if isinstance(one, Expression) and conditions is not None else one for one in kept]


def conditions_of(fake: Any) -> Conditions | None:
    """The conditions of a fake's open sizes, if it has some."""
    if not fake._has_symbolic_sizes_strides:
        return None
    return next((size.node.conditions for size in (*fake.shape, *fake.stride(), fake.storage_offset()) if type(size) is torch.SymInt), None)


def view_of(fake: Any, sizes: Sequence[Any], strides: Sequence[Any], offset: Any) -> torch.Tensor:
    """What `as_strided` makes of a fake, as a tensor on the meta device."""
    with in_kernel_invocation_manager(fake.fake_mode):
        view: torch.Tensor = torch.ops.aten.as_strided.default(fake, sizes, strides, offset)
    return view
