"""What is recorded in the place of some operations of ATen's where gradients are wanted, so that less has to be kept
for the backward.

A norm or softmax is recorded as its statistics, which are small and are kept, and what is made of each element with
them, which is computed again. A batch norm in training writes into its running statistics by operations that say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch.utils.weak import WeakIdKeyDictionary

from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.fuse.training.gradient_decompositions import GRADIENT_DECOMPOSITIONS, MEAN
from framejit.backends.fuse.training.wide import in_dtype, is_plain, wide_of

aten = torch.ops.aten

Decomposition = Callable[..., Any]
"""Takes the operation's arguments, calls others, and gives results with the same sizes, strides and dtypes; or
NotImplemented."""


def _own(parameter: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A bias in a dtype, as a tensor of its own. Eager's autograd does not keep the bias, which the program may write
    into, so neither may this one; of a copy, which is small, the result can be computed again."""
    return aten.clone.default(parameter) if parameter.dtype == dtype else aten._to_copy.default(parameter, dtype=dtype)


def _has_parameters_of(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    """Whether the parameters have one dtype among them, that of x or the one that half precision is computed in: ATen
    may refuse others."""
    dtypes = {parameter.dtype for parameter in parameters if parameter is not None}
    return dtypes <= {x.dtype} or (dtypes == {torch.float32} and x.dtype in (torch.float16, torch.bfloat16))


def _softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    if not is_plain(x) or not x.dim():
        return NotImplemented
    wide = wide_of(x)
    raised = aten.exp.default(aten.sub.Tensor(wide, aten.amax.default(wide, [dim], True)))
    result = aten.div.Tensor(raised, aten.sum.dim_IntList(raised, [dim], True))
    return result if half_to_float else in_dtype(result, x.dtype)


def _log_softmax(x: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    if not is_plain(x) or not x.dim():
        return NotImplemented
    wide = wide_of(x)
    lowered = aten.sub.Tensor(wide, aten.amax.default(wide, [dim], True))
    result = aten.sub.Tensor(lowered, aten.log.default(aten.sum.dim_IntList(aten.exp.default(lowered), [dim], True)))
    return result if half_to_float else in_dtype(result, x.dtype)


def _layer_norm(
    x: torch.Tensor, shape: Sequence[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Any:
    if not is_plain(x) or not _has_parameters_of(x, weight, bias):
        return NotImplemented
    _, mean, rstd = aten.native_layer_norm.default(x, shape, None, None, eps)
    wide = wide_of(x)
    if mean.dtype != wide.dtype:
        return NotImplemented  # statistics that are rounded before anything is made of them
    result = aten.mul.Tensor(aten.sub.Tensor(wide, mean), rstd)
    if weight is not None:
        result = aten.mul.Tensor(result, in_dtype(weight, wide.dtype))
    if bias is not None:
        result = aten.add.Tensor(result, _own(bias, wide.dtype))
    return in_dtype(result, x.dtype), mean, rstd


def _group_norm(
    x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, images: int, channels: int, pixels: int,
    groups: int, eps: float
) -> Any:
    if not is_plain(x) or x.dim() < 2 or not _has_parameters_of(x, weight, bias):
        return NotImplemented
    wide = wide_of(x)
    _, mean, rstd = aten.native_group_norm.default(wide, None, None, images, channels, pixels, groups, eps)
    result = aten.view.default(_normal_by_group(wide, mean, rstd, images, groups), x.shape)
    if weight is not None:
        result = aten.mul.Tensor(result, _by_channel(weight, wide))
    if bias is not None:
        result = aten.add.Tensor(result, _by_channel(_own(bias, wide.dtype), wide))
    # as ATen keeps statistics, which its backward takes
    kept = torch.float32 if any(p is not None and p.dtype == torch.float32 for p in (weight, bias)) else x.dtype
    return in_dtype(result, x.dtype), in_dtype(mean, kept), in_dtype(rstd, kept)


def _normal_by_group(
    wide: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, images: int, groups: int
) -> torch.Tensor:
    """(images, groups, elements of a group), with a mean of 0 and a variance of 1 in each group."""
    lowered = aten.sub.Tensor(aten.view.default(wide, [images, groups, -1]), aten.unsqueeze.default(mean, 2))
    return aten.mul.Tensor(lowered, aten.unsqueeze.default(rstd, 2))


def _group_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None,
    images: int, channels: int, pixels: int, groups: int, wanted: Sequence[bool]
) -> Any:
    """By sums for each channel of each image, of which those for groups and for parameters are made (as in ATen,
    aten/src/ATen/native/cuda/group_norm_kernel.cu)."""
    if not is_plain(grad, x) or x.dim() < 2 or grad.dtype != x.dtype or not _has_parameters_of(x, weight):
        return NotImplemented
    wide = wide_of(x)
    mean, rstd = in_dtype(mean, wide.dtype), in_dtype(rstd, wide.dtype)
    by_channel = [images, groups, channels // groups, pixels]
    flow = aten.view.default(wide_of(grad), by_channel)
    normal = aten.view.default(_normal_by_group(wide, mean, rstd, images, groups), by_channel)
    total = aten.sum.dim_IntList(flow, [3], True)
    weighted = aten.sum.dim_IntList(aten.mul.Tensor(flow, normal), [3], True)
    result = None
    if wanted[0]:
        factor = None if weight is None else aten.view.default(in_dtype(weight, wide.dtype), [1, groups, -1, 1])
        parts = [total, weighted] if factor is None else [aten.mul.Tensor(part, factor) for part in (total, weighted)]
        of_total, of_weighted = (aten.sum.dim_IntList(part, [2], True) for part in parts)
        share = aten.add.Tensor(of_total, aten.mul.Tensor(normal, of_weighted))
        own = flow if factor is None else aten.mul.Tensor(flow, factor)
        scale = aten.view.default(rstd, [images, groups, 1, 1])
        lowered = aten.sub.Tensor(own, aten.mul.Scalar(share, 1.0 / (channels // groups * pixels)))
        result = in_dtype(aten.view.default(aten.mul.Tensor(lowered, scale), x.shape), x.dtype)
    dtype = x.dtype if weight is None else weight.dtype
    of_parameters = [
        in_dtype(aten.view.default(aten.sum.dim_IntList(part, [0]), [channels]), dtype) if is_wanted else None
        for part, is_wanted in ((weighted, wanted[1]), (total, wanted[2]))
    ]
    return (result, *of_parameters)


def _by_channel(parameter: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return aten.view.default(in_dtype(parameter, x.dtype), [1, -1, *[1] * (x.dim() - 2)])


def _all_but_channels(x: torch.Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def _is_image(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    """Whether elementwise results lie as ATen's batch norms lay them out, and its parameters have the dtype that is
    computed in."""
    is_laid_out = x.is_contiguous() or (x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last))
    return (
        x.dim() >= 2 and is_laid_out and x.is_floating_point() and x.numel() > 0 and _has_parameters_of(x, *parameters)
    )


def _batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if not _is_image(x, weight, bias, running_mean, running_var) or (
        not training and (running_mean is None or running_var is None)
    ):
        return NotImplemented
    wide, dims, channels = wide_of(x), _all_but_channels(x), [x.shape[1]]
    if training:
        variance, mean = aten.var_mean.correction(wide, dims, correction=0, keepdim=True)
    else:
        variance, mean = _by_channel(running_var, wide), _by_channel(running_mean, wide)  # type: ignore[arg-type]
    rstd = aten.rsqrt.default(aten.add.Scalar(variance, eps))
    scale = rstd if weight is None else aten.mul.Tensor(rstd, _by_channel(weight, wide))
    if target_of(x.device).shifts_norms:
        # What is added is one small tensor with the bias in it, which is kept in place of the bias (see `_own`).
        shift = aten.neg.default(aten.mul.Tensor(mean, scale))
        if bias is not None:
            shift = aten.add.Tensor(shift, _by_channel(bias, wide))
        result = aten.add.Tensor(aten.mul.Tensor(wide, scale), shift)
    else:
        result = aten.mul.Tensor(aten.sub.Tensor(wide, mean), scale)
        if bias is not None:
            result = aten.add.Tensor(result, _by_channel(_own(bias, wide.dtype), wide))
    result = in_dtype(result, x.dtype)
    if not training:
        nothing = aten.new_empty.default(wide, [0])
        return result, nothing, aten.new_empty.default(wide, [0])
    count = x.numel() // x.shape[1]
    for running, batch, factor in ((running_mean, mean, 1.0), (running_var, variance, count / max(count - 1, 1))):
        if running is not None:
            moved = aten.mul.Scalar(aten.view.default(batch, channels), momentum * factor)
            new = aten.add.Tensor(aten.mul.Scalar(in_dtype(running, wide.dtype), 1 - momentum), moved)
            aten.copy_.default(running, in_dtype(new, running.dtype))
    return result, aten.view.default(mean, channels), aten.view.default(rstd, channels)


def _cudnn_batch_norm(x: torch.Tensor, *rest: Any) -> Any:
    made = _batch_norm(x, *rest)
    return made if made is NotImplemented else (*made, aten.new_empty.default(x, [0], dtype=torch.uint8))


def _batch_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    mean: torch.Tensor | None,
    rstd: torch.Tensor | None,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> Any:
    if not _is_image(x, weight):
        return NotImplemented
    if grad.stride() != x.stride():  # as that of a sum, which is one number everywhere
        order = torch.contiguous_format if x.is_contiguous() else torch.channels_last
        grad = aten.clone.default(grad, memory_format=order)
    wide, flow, dims, channels = wide_of(x), wide_of(grad), _all_but_channels(x), [x.shape[1]]
    if training:
        middle, scale = _by_channel(mean, wide), _by_channel(rstd, wide)  # type: ignore[arg-type]
    else:
        middle = _by_channel(running_mean, wide)  # type: ignore[arg-type]
        scale = aten.rsqrt.default(aten.add.Scalar(_by_channel(running_var, wide), eps))  # type: ignore[arg-type]
    normal = aten.mul.Tensor(aten.sub.Tensor(wide, middle), scale)
    total = aten.sum.dim_IntList(flow, dims, True)
    weighted = aten.sum.dim_IntList(aten.mul.Tensor(flow, normal), dims, True)
    result = None
    if wanted[0]:
        factor = scale if weight is None else aten.mul.Tensor(scale, _by_channel(weight, wide))
        if training:
            share = 1.0 / (x.numel() // x.shape[1])
            flow = aten.sub.Tensor(
                flow, aten.mul.Scalar(aten.add.Tensor(total, aten.mul.Tensor(normal, weighted)), share)
            )
        result = in_dtype(aten.mul.Tensor(flow, factor), x.dtype)
    dtype = wide.dtype if weight is None else weight.dtype
    return (
        result,
        in_dtype(aten.view.default(weighted, channels), dtype) if wanted[1] else None,
        in_dtype(aten.view.default(total, channels), dtype) if wanted[2] else None,
    )


def _cudnn_batch_norm_backward(
    x: torch.Tensor, grad: torch.Tensor, weight: torch.Tensor, running_mean: Any, running_var: Any, mean: Any,
    rstd: Any, eps: float, reserve: torch.Tensor
) -> Any:
    return _batch_norm_backward(grad, x, weight, running_mean, running_var, mean, rstd, True, eps, (True, True, True))


def _nll_loss_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    reduction: int,
    ignored: int,
    total_weight: torch.Tensor,
) -> Any:
    """The gradient of nll_loss, for classes along dimension 1. Only the sizes of `x` are looked at: its memory need not
    be there."""
    if x.dim() < 2 or weight is not None or not is_plain(x) or grad.dtype != x.dtype or total_weight.dtype != x.dtype:
        return NotImplemented
    share = _shares(grad, target, reduction, ignored, total_weight)
    classes = aten.arange.default(x.shape[1], device=x.device)
    classes = aten.view.default(classes, [1, -1, *[1] * (x.dim() - 2)])
    is_target = aten.eq.Tensor(aten.unsqueeze.default(target, 1), classes)
    made = aten.where.self(
        is_target, aten.unsqueeze.default(share, 1), aten.scalar_tensor.default(0.0, dtype=x.dtype, device=x.device)
    )
    _row_sums[made] = share
    return made


def _shares(
    grad: torch.Tensor, target: torch.Tensor, reduction: int, ignored: int, total_weight: torch.Tensor
) -> torch.Tensor:
    """For each row, or pixel, the gradient of its target's element."""
    share = aten.neg.default(grad)
    if reduction == MEAN:
        share = aten.div.Tensor(share, total_weight)
    nothing = aten.scalar_tensor.default(0.0, dtype=grad.dtype, device=grad.device)
    return aten.where.self(aten.ne.Scalar(target, ignored), share, nothing)


def _log_softmax_backward(grad: torch.Tensor, result: torch.Tensor, dim: int, dtype: torch.dtype) -> Any:
    if not is_plain(grad, result) or not grad.dim():
        return NotImplemented
    share = _row_sums.get(grad) if dim % grad.dim() == 1 else None
    total = aten.sum.dim_IntList(wide_of(grad), [dim], True) if share is None else aten.unsqueeze.default(share, 1)
    made = aten.sub.Tensor(wide_of(grad), aten.mul.Tensor(aten.exp.default(wide_of(result)), total))
    return in_dtype(made, dtype)


def _bernoulli(x: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Zeros and ones that are kept as bits of one byte, not as numbers: dropout's masks."""
    if not x.is_floating_point():
        return NotImplemented
    aten.bernoulli_.float(x, p, generator=generator)
    return aten.copy_.default(x, aten.ne.Scalar(x, 0))


_SHORT, _NARROW = 128, 32
"""Sequences and heads at which the backward of attention in bfloat16 takes longer on CPUs than in float32: it is made
of products of small blocks. On a CPU with units for bfloat16, 64 keys of width 16 take 11 times as long, 128 of width
64 2.4 times, 256 of width 32 1.8 times, 256 of width 64 0.9 times."""


def _attention_backward_on_cpu(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    result: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """The backward in float32, where that is quicker than in half precision. For float16 it always is."""
    dtype = query.dtype
    is_slow = dtype == torch.bfloat16 and (key.shape[-2] <= _SHORT or key.shape[-1] <= _NARROW)
    if not is_slow and dtype != torch.float16:
        return NotImplemented
    mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else wide_of(attn_mask)
    gradients = aten._scaled_dot_product_flash_attention_for_cpu_backward.default(
        *map(wide_of, (grad, query, key, value, result)), logsumexp, dropout, is_causal, attn_mask=mask, scale=scale
    )
    return tuple(in_dtype(gradient, dtype) for gradient in gradients)


_row_sums: Final = WeakIdKeyDictionary()
"""For gradients of losses with one element in each row: what they sum up to along dimension 1, which need not be
worked out."""


DECOMPOSITIONS: Final[dict[Any, Decomposition]] = {
    aten._softmax.default: _softmax,
    aten._log_softmax.default: _log_softmax,
    aten.native_layer_norm.default: _layer_norm,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
    aten.native_batch_norm.default: _batch_norm,
    aten.cudnn_batch_norm.default: _cudnn_batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.cudnn_batch_norm_backward.default: _cudnn_batch_norm_backward,
    aten.nll_loss_backward.default: _nll_loss_backward,
    aten.nll_loss2d_backward.default: _nll_loss_backward,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.bernoulli_.float: _bernoulli,
    aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention_backward_on_cpu,
    **GRADIENT_DECOMPOSITIONS,
}
