"""Attention for sizes that vary from call to call.

cuDNN builds a plan for each combination of sizes that it meets, which takes 40 ms of the host's time and more (torch
2.11, H100 and H200): one for each token of a text that is generated with a cache that grows. Torch's own kernels take
sizes as arguments.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.backends.cuda import SDPAParams, can_use_efficient_attention, can_use_flash_attention
from torch.nn.attention import SDPBackend
from torch.nn.functional import pad

aten: Final = torch.ops.aten
CUDNN: Final = SDPBackend.CUDNN_ATTENTION.value
ROW_OF_HEAD, ROW_OF_MASK = 8, 16
"""Torch's kernels want heads and rows of masks in multiples of so many elements (aten/src/ATen/native/transformers)."""


def attention_of_varying_sizes(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` without gradients, by another kernel where torch would choose
    cuDNN's.

    query: (..., heads, length, head), of one dtype and device with key and value, (..., heads, other length, head).
    attn_mask: Broadcasts to (..., heads, length, other length).

    Which kernels may be chosen is the program's to say, as ever (`torch.nn.attention.sdpa_kernel`).
    """
    given = query, key, value, attn_mask, dropout_p, is_causal
    if (
        query.shape[-1] % ROW_OF_HEAD == 0
        and torch._fused_sdp_choice(*given, scale=scale, enable_gqa=enable_gqa) == CUDNN
    ):
        params = SDPAParams(*given, enable_gqa)
        if can_use_flash_attention(params):
            return _first(aten._scaled_dot_product_flash_attention(query, key, value, 0.0, is_causal, scale=scale))
        if can_use_efficient_attention(params):
            mask = None if attn_mask is None else _in_long_rows(attn_mask, query, key)
            return _first(
                aten._scaled_dot_product_efficient_attention(
                    query, key, value, mask, False, 0.0, is_causal, scale=scale
                )
            )
    return torch._C._nn.scaled_dot_product_attention(*given, scale=scale, enable_gqa=enable_gqa)


def _first(results: Any) -> torch.Tensor:
    output: torch.Tensor = results[0]
    return output


def _in_long_rows(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """A mask as the kernel reads it: as large as what it is added to, each row on a boundary of its own."""
    length = mask.shape[-1]
    if length % ROW_OF_MASK:
        mask = pad(mask, (0, -length % ROW_OF_MASK))[..., :length]
    return mask.expand(*query.shape[:-1], key.shape[-2])
