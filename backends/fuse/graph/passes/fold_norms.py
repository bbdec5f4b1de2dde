"""Batch norms of inference behind convolutions and linear layers with frozen weights: folded into the weights.

    norm(conv(x, w) + b) = (conv(x, w) + b - mean) * s + shift,  s = scale / sqrt(var + eps)
                         = conv(x, w * s) + (b - mean) * s + shift

for each output channel. The new weights are computed in float64 and rounded once to the dtype of the old ones. So
results differ from eager's in their last bits: in both, the error is a few roundings of sums of products that were
scaled by s, here before the sum and there behind it.

A norm that a kernel computes along with what follows (an activation, a sum) costs no time of its own: a ResNet-18 takes
as long on a CPU with its 20 norms folded as without, and 43 MiB more. Such a norm is folded only where the weights are
small, or copied anyway (in another dtype or memory layout, or packed for a library: there a norm along with what
follows is slow, besides, for channels lie side by side).
"""

from __future__ import annotations

from typing import Final

import torch

from framejit.backends.fuse.graph.computation import Computation, Result, plainly
from framejit.backends.fuse.graph.folded_norm import folded_norm
from framejit.backends.fuse.graph.frozen_values import FrozenValues, frozen_values
from framejit.backends.fuse.graph.graph import Constant, Graph
from framejit.backends.fuse.graph.known import MOST_BYTES
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.packed_weights import packs_convolution, packs_product
from framejit.backends.fuse.graph.passes.pass_context import Context
from framejit.backends.fuse.graph.value import Storage, Value
from framejit.backends.fuse.lowering.fusable import is_fusable
from framejit.backends.fuse.lowering.lowerings import functional_name, lowering_of
from framejit.backends.fuse.targets.lookup import target_of
from framejit.fakes.light_torch import light

CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")
TRANSPOSED: Final = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
# the others are what autocast makes of it, and are ATen's
NORMS: Final = ("batch_norm", "native_batch_norm", "cudnn_batch_norm")
GROUPS: Final = 6  # the position of a transposed convolution's groups among its arguments


def fold_norms(graph: Graph, context: Context) -> Graph:
    """Fold what batch norms can be folded. The operations that took their norms with them have new weights, which are
    constants."""
    with plainly():
        known = frozen_values(graph, context.gm, context.examples)
        if known is not None:
            _fold(graph, known)
    return graph


def _fold(graph: Graph, known: FrozenValues) -> None:
    products = {node.result: node for node in graph.nodes if node.name in (*CONVOLUTIONS, *TRANSPOSED, "linear")}
    users: dict[Storage, list[Node | None]] = {}
    for node in graph.nodes:
        for storage in dict.fromkeys(value.storage for value in node.values()):
            users.setdefault(storage, []).append(node)
    for value in graph.returned():
        users.setdefault(value.storage, []).append(None)
    replaced: dict[Node, list[Node]] = {}
    for norm in graph.nodes:
        product = products.get(norm.args[0]) if norm.name in NORMS else None
        if product is None or len(users[product.result.storage]) > 1:
            continue
        normed, *statistics = norm.returned()
        if any(value.storage in users for value in statistics):
            continue
        if (
            norm.name == "batch_norm"
            and _costs_memory(product, known)
            and _comes_along(normed, users.get(normed.storage, []))
        ):
            continue
        made = _folded(graph, product, norm, known)
        if made is not None:
            first, *rest = made
            replaced[product], replaced[norm] = [first], rest
    graph.rewrite(replaced.get)


def _costs_memory(product: Node, known: FrozenValues) -> bool:
    """Whether the new weight takes memory that is not taken without it."""
    if packs_convolution(product) or packs_product(product):
        return False
    weight = product.args[1]
    return weight.numel() * weight.itemsize > MOST_BYTES and (not known.knows(weight) or known.is_view(weight))


def _comes_along(normed: Value, users: list[Node | None]) -> bool:
    """Whether kernels of ours compute what a norm gives, rather than read it: all that use it are lowered, or the
    first, which writes in its place."""
    kernels = [
        user is not None
        and lowering_of(functional_name(user.name), user.operation._overloadname) is not None
        and is_fusable(user)
        for user in users
    ]
    first = users[0] if users else None
    if first is not None and normed in first.writes:
        return kernels[0]
    return bool(kernels) and all(kernels)


def _folded(graph: Graph, product: Node, norm: Node, known: FrozenValues) -> list[Node] | None:
    """What takes the place of an operation and of the batch norm behind it; None if the norm can't be folded."""
    x, weight, bias, *rest = (*product.args, None)[: max(3, len(product.args))]
    _, scale, shift, mean, var, training, _, eps = norm.args[:8]
    parts = [part for part in (weight, bias, scale, shift, mean, var) if part is not None]
    result, normed = product.result, next(norm.returned())
    if (
        training
        or product.kwargs
        or mean is None
        or var is None
        or not all(map(known.knows, parts))
        or not weight.dtype.is_floating_point
        or not result.dtype == normed.dtype == weight.dtype
        or result.dim() != weight.dim()
        or result.strides != normed.strides
    ):
        return None
    groups = rest[GROUPS - 3] if product.name in TRANSPOSED and len(rest) > GROUPS - 3 else 1
    apart = bias_is_added_apart(product)
    operands = map(known.operand, (weight, bias, scale, shift, mean, var))
    made = Computation(
        folded_norm, (*operands, eps, weight.dtype, groups if product.name in TRANSPOSED else None, apart)
    )
    graph.norms.append(made)
    if made.outcome() is None:
        return None
    new_weight, new_bias = made.outcome()
    with light(), graph.fake_mode:
        fakes = [
            torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            for tensor in (new_weight, new_bias)
        ]
    weight, bias = (
        graph.constant(Value(fake), Constant(tensor, made=Result(made, position)))
        for position, (fake, tensor) in enumerate(zip(fakes, (new_weight, new_bias)))
    )
    known.mark(*parts)
    if not apart:
        return [Node(product.operation, (x, weight, bias, *rest), {}, normed, product.origin)]
    return [
        Node(product.operation, (x, weight, None, *rest), {}, result, product.origin),
        Node(torch.ops.aten.add.Tensor, (result, bias), {}, normed, norm.origin),
    ]


def bias_is_added_apart(product: Node) -> bool:
    """Whether ATen adds the bias in a kernel of its own, as behind cuDNN's convolutions; then ours adds it along with
    what follows."""
    return target_of(product.result.device).adds_bias_apart and product.name != "linear"
