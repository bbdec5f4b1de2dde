"""Compiling a graph draws no random numbers from the program's generators."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import framejit


@pytest.mark.parametrize("is_causal", (False, True))
def test_trying_attention_with_dropout_draws_nothing(is_causal: bool, tmp_path: Path) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(x, x, x, dropout_p=0.37, is_causal=is_causal) + torch.rand(3, 1)

    x = torch.randn(2, 3, 8)
    torch.manual_seed(3)
    expected, state = [fn(x), fn(x)], torch.get_rng_state()
    with framejit.config.patch(cache_dir=str(tmp_path), keep_captures=False):  # so that it is compiled here
        compiled = framejit.optimize(fn, backend="fuse")
        torch.manual_seed(3)
        for result in expected:
            torch.testing.assert_close(compiled(x), result)
    assert torch.equal(torch.get_rng_state(), state)
