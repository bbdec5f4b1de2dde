"""Operations that ATen carries out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch

from framejit.backends.fuse.graph.node import Node, argument_of
from framejit.backends.fuse.graph.places import place_of_offset
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.loop_ir.nodes import Buffer
from framejit.backends.fuse.lowering.accepted import accepts
from framejit.backends.fuse.lowering.builder import Builder
from framejit.backends.fuse.lowering.lowered_tensor import Tensor
from framejit.backends.fuse.lowering.storages import Storages
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.plan.attention import attention_of_varying_sizes
from framejit.backends.fuse.plan.callables import callable_of
from framejit.backends.fuse.plan.plan_functions import scattered, strided_copy
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.may_raise import may_raise, may_warn

PLACED: Final[dict[torch._ops.OpOverload, Callable[..., Any]]] = {
    torch.ops.aten.as_strided_scatter.default: scattered,
    torch.ops.aten.as_strided_copy.default: strided_copy,
}
"""What names a place in a tensor's storage, which may begin elsewhere when a plan runs, by what counts from the
tensor's own beginning."""


def call_extern(b: Builder, storages: Storages, node: Node) -> None:
    """Add the call of an operation that writes into none of its arguments; its results are looked up if they are the
    same each time."""
    values = [*node.returned()]
    known = [tensor for value in values if (tensor := storages.known.value(value)) is not None]
    if values and len(known) == len(values):
        for value, tensor in zip(values, known):
            buffer = b.buffer(value.shape, value.strides, value.dtype, value.device, constant=b.shared(tensor))
            storages.bind(value, Tensor.of(b.held(buffer)))
        return
    args, kwargs = storages.operands(node)
    function = callable_of(node.operation)
    if node.operation._opname == "scaled_dot_product_attention" and _is_of_varying_sizes(node):
        function = attention_of_varying_sizes
    if node.operation._opname == "embedding" and len(args) > 2:
        # padding and sparse gradients are of no concern here
        function, args = torch._C._VariableFunctions.embedding, args[:2]
    before = place_of_offset(node.operation)
    if before is not None and node.operation in PLACED:
        offset = node.args[before] if len(node.args) > before else node.kwargs.get("storage_offset")
        relative = offset - node.args[0].offset if offset is not None else 0
        function, args, kwargs = PLACED[node.operation], (*args[:before], relative), {}
    results, made = buffers_for_results(b, storages, node)
    b.extern(
        function, args, kwargs, results, ordered=node.ordered, speaks=may_speak_when_run(node),
        accepted=partial(accepts, node),
    )
    for value, buffer in made:
        storages.bind(value, Tensor.of(b.held(buffer)))


def _is_of_varying_sizes(node: Node) -> bool:
    """Whether attention has no dropout, and sizes that the device's own choice of a kernel would be costly for."""
    query, key = node.args[:2]
    dropout = argument_of(node.operation, node.args, node.kwargs, "dropout_p", 0.0)
    prefers = target_of(query.device).prefers_layouts
    return prefers and not dropout and (query.has_symbolic_sizes or key.has_symbolic_sizes)


def buffers_for_results(b: Builder, storages: Storages, node: Node) -> tuple[Any, list[tuple[Value, Buffer]]]:
    """Buffers for what ATen returns, as an ExternNode has them, and each with its value; what is known already, a view
    or an argument, has none."""
    made: list[tuple[Value, Buffer]] = []

    def buffer_for(value: Any) -> Buffer | None:
        if not isinstance(value, Value) or storages.knows(value):
            return None
        buffer = b.buffer(value.shape, value.strides, value.dtype, value.device)
        made.append((value, buffer))
        return buffer

    if isinstance(node.result, (tuple, list)) and any(isinstance(part, (tuple, list)) for part in node.result):
        raise NotFusable(f"{node.operation.name()} returns lists in a tuple")
    return tuple(map(buffer_for, node.result)) if isinstance(node.result, (tuple, list)) else buffer_for(
        node.result
    ), made


def may_speak_when_run(node: Node) -> bool:
    """Whether an operation may raise for what is in its tensors, or warn."""
    arguments = node.fake_arguments()
    return may_raise(node.operation, *arguments) or may_warn(node.operation, *arguments)
