"""What the code generators can do, asked before an operation is lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.loop_ir.expr import Expr, load
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.lowerings import FUSED_DTYPES
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.own_operations import NAMESPACE

MOST_KNOWN: Final = 4096  # names hold numbers of the user's, so that there is no end to them


def supports(op: str, dtype: torch.dtype, device: torch.device, divisor: Expr | None = None) -> bool:
    """Whether the code generator for the device can do an operation on operands of a dtype; see `Target.supports`."""
    return target_of(device).supports(op, dtype, divisor)


def is_fusable(node: Node) -> bool:
    """Whether kernels can read and write the dtypes that an operation takes and gives, on the devices they are on."""
    return node.operation.namespace in ("aten", NAMESPACE) and all(
        can_hold(tensor.dtype, tensor.device) for tensor in (*node.values(), *node.returned())
    )


def can_hold(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether kernels for the device can read and write a dtype."""
    target = target_of(device)
    known = target.answers.get(dtype)
    if known is None:
        known = target.answers[dtype] = dtype in FUSED_DTYPES and target.supports("load", dtype)
    return known


def supports_body(name: str, body: Callable[..., Expr], dtypes: tuple[torch.dtype, ...], device: torch.device) -> bool:
    """Whether it can do all that `body` makes of operands of the dtypes. False too where `body` declines.

    `name` and `dtypes` must tell which operations `body` uses.
    """
    key = (name, dtypes)
    target = target_of(device)
    known = target.answers.get(key)
    if known is None:
        if len(target.answers) > MOST_KNOWN:
            target.answers.clear()
        made = body(*(load("operand", Index({}, position), dtype) for position, dtype in enumerate(dtypes)))
        known = target.answers[key] = made is not NotImplemented and all(
            target.supports(node.op, node.args[-1].dtype, node.args[-1])
            for node in made.walk()
            if node.args and node.op not in ("cast", "bitcast", "masked")
        )
    return known
