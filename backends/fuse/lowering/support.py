"""What the code generators can do, asked before an operation is lowered."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Final

import torch

from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.loop_ir.expr import Expr, load
from framejit.backends.fuse.loop_ir.index import Index
from framejit.backends.fuse.lowering.registry import FUSED_DTYPES

MOST_KNOWN: Final = 4096  # names hold numbers of the user's, so that there is no end to them
_known: dict[tuple[object, ...], bool] = {}


def supports(op: str, dtype: torch.dtype, device: torch.device, divisor: Expr | None = None) -> bool:
    """Whether the code generator for the device can do an operation on operands of a dtype; reductions are `reduce_` and the kind."""
    if device.type == "cpu":
        from framejit.backends.fuse.llvm.support import supports as on_cpu

        return on_cpu(op.removeprefix("reduce_"), dtype, divisor)
    if device.type == "cuda":
        from framejit.backends.fuse.triton.support import supports as on_cuda

        return on_cuda(op, dtype)
    return False


def is_fusable(node: Node) -> bool:
    """Whether kernels can read and write the dtypes that an operation takes and gives, on the devices they are on."""
    return node.operation.namespace == "aten" and all(_can_hold(tensor.dtype, tensor.device.type) for tensor in (*node.values(), *node.returned()))


@functools.cache
def _can_hold(dtype: torch.dtype, device_type: str) -> bool:
    return dtype in FUSED_DTYPES and supports("load", dtype, torch.device(device_type))


def supports_body(name: str, body: Callable[..., Expr], dtypes: tuple[torch.dtype, ...], device: torch.device) -> bool:
    """Whether it can do all that `body` makes of operands of the dtypes. False too where `body` declines.

    `name` and `dtypes` must tell which operations `body` uses.
    """
    key = (name, dtypes, device.type)
    known = _known.get(key)
    if known is None:
        if len(_known) > MOST_KNOWN:
            _known.clear()
        made = body(*(load("operand", Index({}, position), dtype) for position, dtype in enumerate(dtypes)))
        known = _known[key] = made is not NotImplemented and all(
            supports(node.op, node.args[-1].dtype, device, node.args[-1]) for node in made.walk() if node.args and node.op not in ("cast", "bitcast", "masked")
        )
    return known
