"""A batch norm of inference in the weight and bias of the operation before it: what the pass `fold_norms` and plans
from the disk compute."""

from __future__ import annotations

from typing import Any

import torch


def folded_norm(
    weight: torch.Tensor, bias: torch.Tensor | None, scale: torch.Tensor | None, shift: torch.Tensor | None,
    mean: torch.Tensor, var: torch.Tensor, eps: float, dtype: torch.dtype, transposed: int | None, apart: bool,
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The weight and bias that have a norm in them; None where they are not finite, or would lie otherwise than the
    weight did.

    `transposed`: the number of groups of a transposed convolution, whose weight has the output channels second.
    `apart`: the bias is to be added apart.
    """
    double: list[Any] = [
        None if number is None else number.double() for number in (weight, bias, scale, shift, mean, var)
    ]
    exact, old_bias, scale, shift, mean, var = double
    factor = torch.rsqrt(var + eps) if scale is None else scale * torch.rsqrt(var + eps)
    new_bias = (-mean if old_bias is None else old_bias - mean) * factor
    new_bias = new_bias if shift is None else new_bias + shift
    ones = (1 for _ in weight.shape[2:])
    if transposed is None:
        by_channel = factor.view(-1, 1, *ones)
    else:
        by_channel = (
            factor.view(transposed, -1)
            .repeat_interleave(weight.shape[0] // transposed, 0)
            .view(*weight.shape[:2], *ones)
        )
    new_weight, new_bias = (exact * by_channel).to(dtype), new_bias.to(dtype)
    if (
        not (torch.isfinite(new_weight).all() and torch.isfinite(new_bias).all())
        or new_weight.stride() != weight.stride()
    ):
        return None
    return new_weight, new_bias.view(-1, *(1 for _ in weight.shape[2:])) if apart else new_bias
