"""Attention whose sizes vary, on a GPU: eager's numbers and strides, without a plan of cuDNN's for each size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile

import framejit
from framejit.backends.fuse import backend

pytestmark = pytest.mark.gpu

CUDNN = "aten::_cudnn_attention_forward"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    framejit.reset()


@pytest.fixture
def never_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans run, whatever is quicker."""
    make = backend.selector
    monkeypatch.setattr(backend, "selector", lambda run, eager, *rest: make(run, run, *rest))


def called(f: Callable[[], Any]) -> set[str]:
    """The names of the operations that a function calls."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        f()
    return {event.name for event in seen.events()}


def plain(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v)


def causal(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.2)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k[:, ::4], v[:, ::4], enable_gqa=True)


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, mask)


def added(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, torch.where(mask, 0.0, -1e4).to(q.dtype), scale=0.3)


def in_rows(q, k, v, mask):
    out = F.scaled_dot_product_attention(q * 2, k, v, mask)
    return out.transpose(1, 2).reshape(q.shape[0], q.shape[2], -1)


@pytest.mark.parametrize("head", [64, 128, 40])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", [plain, causal, grouped, masked, added, in_rows])
def test_lengths_that_vary(form: Callable[..., torch.Tensor], dtype: torch.dtype, head: int) -> None:
    fast = framejit.optimize(form, dynamic=True)
    with torch.no_grad():
        for length in (24, 37, 64, 65, 130):
            rows = length if form is causal else 7
            q = torch.randn(2, rows, 8, head, device="cuda", dtype=dtype).transpose(1, 2)
            k, v = (torch.randn(2, 8, length, head, device="cuda", dtype=dtype) for _ in range(2))
            mask = torch.rand(2, 1, rows, length, device="cuda") < 0.7
            mask[..., 0] = True
            expected = form(q, k, v, mask)
            for _ in range(3):
                got = fast(q, k, v, mask)
                assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
                exact = form(*(x.double() for x in (q, k, v)), mask)
                ours, theirs = ((x.double() - exact).norm() for x in (got, expected))
                assert ours <= 1.2 * theirs + 1e-3 * exact.norm()


def test_no_plan_of_cudnn_for_each_length(never_eager: None) -> None:
    fast = framejit.optimize(plain, dynamic=True, backend="fuse")
    with torch.no_grad():
        for length in (24, 37, 64, 65):
            given = [torch.randn(2, 8, n, 64, device="cuda", dtype=torch.bfloat16) for n in (1, length, length)]
            for _ in range(2):
                fast(*given, None)
            assert CUDNN not in called(partial(fast, *given, None))


def test_the_program_says_which_kernels(never_eager: None) -> None:
    fast = framejit.optimize(plain, dynamic=True, backend="fuse")
    given = [torch.randn(2, 8, n, 64, device="cuda", dtype=torch.bfloat16) for n in (5, 40, 40)]
    with torch.no_grad():
        for _ in range(12):
            fast(*given, None)
        with sdpa_kernel([SDPBackend.MATH]):
            names = called(lambda: fast(*given, None))
        assert "aten::_scaled_dot_product_attention_math" in names and CUDNN not in names
        with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
            assert CUDNN in called(lambda: fast(*given, None))
