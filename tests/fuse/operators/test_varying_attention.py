"""What plans call for attention whose sizes vary gives what torch's function gives. (Whether cuDNN is avoided is seen
on GPUs: tests/gpu/test_attention.py.)"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from framejit.backends.fuse.plan import attention
from framejit.backends.fuse.plan.attention import attention_of_varying_sizes

Q, K = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 19, 16)
MASK = torch.rand(2, 1, 5, 19) < 0.8
FORMS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((Q, K, K), {}),
    ((Q, Q, Q, None, 0.0, True), {"scale": 0.3}),
    ((Q, K, K, MASK), {"scale": 0.1}),
    ((Q, K, K, torch.randn(5, 19)), {}),
    ((Q, K[:, :2], K[:, :2]), {"enable_gqa": True}),
]


@pytest.mark.parametrize(("args", "kwargs"), FORMS)
def test_it_is_torchs_function(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    assert torch.equal(attention_of_varying_sizes(*args, **kwargs), F.scaled_dot_product_attention(*args, **kwargs))


@pytest.mark.parametrize(("args", "kwargs"), FORMS)
@pytest.mark.parametrize("kernel", ["flash", "efficient"])
def test_the_kernel_in_the_place_of_cudnns_is_given_what_it_takes(
    args: tuple[Any, ...], kwargs: dict[str, Any], kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With stand-ins for the kernels, which check what they ask for in the place of what a GPU would."""
    given: list[str] = []

    class Kernels:
        @staticmethod
        def _scaled_dot_product_flash_attention(query, key, value, dropout, causal, *, scale):
            given.append("flash")
            grouped = query.shape[1] != key.shape[1]
            return (F.scaled_dot_product_attention(
                query, key, value, None, dropout, causal, scale=scale, enable_gqa=grouped
            ),)

        @staticmethod
        def _scaled_dot_product_efficient_attention(query, key, value, bias, logsumexp, dropout, causal, *, scale):
            given.append("efficient")
            assert not logsumexp
            if bias is not None:
                assert bias.shape == (*query.shape[:-1], key.shape[-2])
                assert all(step % 16 == 0 for step in bias.stride()[:-1]) and bias.stride(-1) == 1
            return (F.scaled_dot_product_attention(query, key, value, bias, dropout, causal, scale=scale),)

    monkeypatch.setattr(attention, "aten", Kernels)
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *args, **kwargs: attention.CUDNN)
    for name in ("flash", "efficient"):
        monkeypatch.setattr(
            attention, f"can_use_{name}_attention",
            lambda params, name=name: name == kernel and not (kernel == "flash" and params.attn_mask is not None)
            and not (kernel == "efficient" and params.enable_gqa),
        )
    result = attention_of_varying_sizes(*args, **kwargs)
    torch.testing.assert_close(result, F.scaled_dot_product_attention(*args, **kwargs))
    masked, grouped = len(args) > 3 and args[3] is not None, bool(kwargs.get("enable_gqa"))
    taken = not masked if kernel == "flash" else not grouped
    assert given == [kernel] * taken


def test_heads_of_odd_size_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *args, **kwargs: attention.CUDNN)
    q = torch.randn(1, 2, 3, 5)
    assert torch.equal(attention_of_varying_sizes(q, q, q), F.scaled_dot_product_attention(q, q, q))
