"""The results of operations of which torch's fakes know nothing: losses, samples and quantisation that programs train
with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

_aten: Final = torch.ops.aten


def _row_major(place: int) -> Callable[..., torch.Tensor]:
    """A result of the sizes and dtype of an argument, in the order of its dimensions."""
    return lambda *args: torch.empty_like(args[place], memory_format=torch.contiguous_format)


def _like_first(tensor: torch.Tensor, *_: Any) -> torch.Tensor:
    return torch.empty_like(tensor)


def _with_mask(tensor: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """A result that lies as the first argument does, and a mask of its elements."""
    return torch.empty_like(tensor), torch.empty_like(tensor, dtype=torch.bool)


def _of_quantised(
    gradient: torch.Tensor, tensor: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(tensor), tensor.new_empty(scale.shape), tensor.new_empty(zero_point.shape)


RULES: Final[Mapping[Any, Callable[..., Any]]] = {
    _aten.multi_margin_loss_backward.default: _row_major(1),
    _aten.multilabel_margin_loss_backward.default: _row_major(1),
    _aten.fractional_max_pool3d_backward.default: _row_major(1),
    _aten._sample_dirichlet.default: _row_major(0),
    _aten._dirichlet_grad.default: _row_major(0),
    _aten._standard_gamma_grad.default: _row_major(0),
    _aten.binomial.default: _row_major(0),
    _aten.fake_quantize_per_tensor_affine_cachemask.default: _with_mask,
    _aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _with_mask,
    _aten.fake_quantize_per_channel_affine_cachemask.default: _with_mask,
    _aten._fake_quantize_learnable_per_tensor_affine.default: _like_first,
    _aten._fake_quantize_learnable_per_channel_affine.default: _like_first,
    _aten._fake_quantize_learnable_per_tensor_affine_backward.default: _of_quantised,
    _aten._fake_quantize_learnable_per_channel_affine_backward.default: _of_quantised,
}


def missing_rule(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[[], Any] | None:
    """What makes the results of an operation, which it is asked for under fakes; None where torch's own rule does, or
    there is none."""
    rule = RULES.get(func)
    if rule is None or kwargs.keys() - {"generator"} or not all(map(_is_plain, args)):
        return None
    return lambda: rule(*args)


def _is_plain(arg: Any) -> bool:
    return not isinstance(arg, torch.Tensor) or arg.layout == torch.strided
