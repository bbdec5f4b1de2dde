"""Batch norms of inference behind convolutions and linear layers with frozen weights: folded into the weights.

    norm(conv(x, w) + b) = (conv(x, w) + b - mean) * s + shift,  s = scale / sqrt(var + eps)
                         = conv(x, w * s) + (b - mean) * s + shift

for each output channel. The new weights are computed in float64 and rounded once to the dtype of the old ones. So results differ from eager's in
their last bits: in both, the error is a few roundings of sums of products that were scaled by s, here before the sum and there behind it.

A norm that a kernel computes along with what follows (an activation, a sum) costs no time of its own: a ResNet-18 takes as long on a CPU with its 20 norms
folded as without, and 43 MiB more. Such a norm is folded only where the weights are small, or copied anyway (in another dtype or memory layout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.fuse.lowering.constants import MOST_BYTES
from framejit.backends.fuse.lowering.registry import functional_name, lowering_of
from framejit.backends.fuse.lowering.support import is_fusable
from framejit.backends.fuse.trace import Call, Trace, storage_of, tensors_in, written_arguments
from framejit.capture.light_torch import light

if TYPE_CHECKING:
    from framejit.backends.fuse.frozen import FrozenValues

CONVOLUTIONS: Final = ("conv1d", "conv2d", "conv3d")
TRANSPOSED: Final = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
NORMS: Final = ("batch_norm", "native_batch_norm", "cudnn_batch_norm")  # the others are what autocast makes of it, and are ATen's
GROUPS: Final = 6  # the position of a transposed convolution's groups among its arguments


def fold_norms(traced: Trace, known: FrozenValues) -> int:
    """Fold what batch norms can be folded; says how many. The operations that took their norms with them have new weights, whose values are known."""
    products = {id(call.result): call for call in traced.calls if call.name in (*CONVOLUTIONS, *TRANSPOSED, "linear")}
    users: dict[int, list[Call | None]] = {}
    for call in traced.calls:
        for storage in {storage_of(fake) for fake in call.tensors()}:
            users.setdefault(storage, []).append(call)
    for fake in tensors_in(traced.outputs):
        users.setdefault(storage_of(fake), []).append(None)
    replaced: dict[int, list[Call]] = {}
    for norm in traced.calls:
        product = products.get(id(norm.args[0])) if norm.name in NORMS else None
        if product is None or len(users[storage_of(product.result)]) > 1:
            continue
        normed, *statistics = norm.results()
        if any(storage_of(fake) in users for fake in statistics):
            continue
        if norm.name == "batch_norm" and _costs_memory(product, known) and _comes_along(normed, users.get(storage_of(normed), [])):
            continue
        made = _folded(product, norm, known)
        if made is not None:
            first, *rest = made
            replaced[id(product)], replaced[id(norm)] = [first], rest
    traced.calls = [made for call in traced.calls for made in replaced.get(id(call), (call,))]
    return len(replaced) // 2


def _costs_memory(product: Call, known: FrozenValues) -> bool:
    """Whether the new weight takes memory that is not taken without it."""
    weight = product.args[1]
    return weight.numel() * weight.itemsize > MOST_BYTES and (not known.knows(weight) or known.is_view(weight))


def _comes_along(normed: torch.Tensor, users: list[Call | None]) -> bool:
    """Whether kernels of ours compute what a norm gives, rather than read it: all that use it are lowered, or the first, which writes in its place."""
    kernels = [user is not None and lowering_of(functional_name(user.name), user.func._overloadname) is not None and is_fusable(user) for user in users]
    first = users[0] if users else None
    if first is not None and any(fake is normed for fake in written_arguments(first)):
        return kernels[0]
    return bool(kernels) and all(kernels)


def _folded(product: Call, norm: Call, known: FrozenValues) -> list[Call] | None:
    """What takes the place of an operation and of the batch norm behind it; None if the norm can't be folded."""
    x, weight, bias, *rest = (*product.args, None)[: max(3, len(product.args))]
    _, scale, shift, mean, var, training, _, eps = norm.args[:8]
    parts = [part for part in (weight, bias, scale, shift, mean, var) if part is not None]
    result, normed = product.result, next(norm.results())
    if (
        training
        or product.kwargs
        or mean is None
        or var is None
        or not all(map(known.knows, parts))
        or not weight.dtype.is_floating_point
        or not result.dtype == normed.dtype == weight.dtype
        or result.dim() != weight.dim()
        or result.stride() != normed.stride()
    ):
        return None
    numbers = [None if part is None else known.number(part) for part in (weight, bias, scale, shift, mean, var)]
    groups = rest[GROUPS - 3] if product.name in TRANSPOSED and len(rest) > GROUPS - 3 else 1
    new_weight, new_bias = _rounded(numbers, eps, weight.dtype, groups if product.name in TRANSPOSED else None)
    old = known.number(weight)
    if not (torch.isfinite(new_weight).all() and torch.isfinite(new_bias).all()) or new_weight.stride() != old.stride():
        return None
    apart = bias_is_added_apart(product)
    if apart:
        new_bias = new_bias.view(-1, *(1 for _ in weight.shape[2:]))
    with light(), weight.fake_mode:
        fakes = [torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device) for value in (new_weight, new_bias)]
    for fake, value in zip(fakes, (new_weight, new_bias)):
        known.add(fake, value, parts)
    if not apart:
        return [Call(product.func, (x, *fakes, *rest), {}, normed, product.origin)]
    return [
        Call(product.func, (x, fakes[0], None, *rest), {}, result, product.origin),
        Call(torch.ops.aten.add.Tensor, (result, fakes[1]), {}, normed, norm.origin),
    ]


def bias_is_added_apart(product: Call) -> bool:
    """Whether ATen adds the bias in a kernel of its own, as behind cuDNN's convolutions; then ours adds it along with what follows."""
    return bool(product.result.device.type == "cuda") and product.name != "linear"


def _rounded(numbers: list[torch.Tensor | None], eps: float, dtype: torch.dtype, transposed: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The new weight and bias. `transposed`: the number of groups of a transposed convolution, whose weight has the output channels second."""
    double: list[Any] = [None if number is None else number.double() for number in numbers]
    weight, bias, scale, shift, mean, var = double
    factor = torch.rsqrt(var + eps) if scale is None else scale * torch.rsqrt(var + eps)
    new_bias = (-mean if bias is None else bias - mean) * factor
    new_bias = new_bias if shift is None else new_bias + shift
    ones = (1 for _ in weight.shape[2:])
    if transposed is None:
        by_channel = factor.view(-1, 1, *ones)
    else:
        by_channel = factor.view(transposed, -1).repeat_interleave(weight.shape[0] // transposed, 0).view(*weight.shape[:2], *ones)
    return (weight * by_channel).to(dtype), new_bias.to(dtype)
