"""Tiles that are measured: on a GPU the answers are eager's whichever is taken, and the choice is made once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit

from support import of_kind, recorded

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path), keep_captures=False):
        yield


def rows(x, w):
    return F.softmax(F.layer_norm(x, x.shape[-1:]) * w, -1)


def columns(x, w):
    return (x * w).sum(0), x.amax(0)


def transposed(x, w):
    return (x * w).t().contiguous() + 1


def product(x, w):
    return F.gelu(x[:1] @ x.t() + 1)


def in_place(x, w):
    y = x.clone()
    y.mul_(w).add_(1)
    return y.cumsum(-1), y


@pytest.mark.parametrize("mode", ["max-autotune", "max-autotune-no-cudagraphs"])
@pytest.mark.parametrize("f", [rows, columns, transposed, product, in_place])
def test_results_are_eager_s_and_tiles_are_measured_once(f, mode):
    x, w = torch.randn(512, 4096, device="cuda"), torch.randn(4096, device="cuda")
    state = torch.cuda.get_rng_state()
    for number in range(2):
        framejit.reset()
        fast = framejit.optimize(f, mode=mode)
        with recorded() as log, torch.no_grad():
            for _ in range(6):
                torch.testing.assert_close(fast(x, w), f(x, w), rtol=1e-3, atol=1e-2)
        told = of_kind(log, "autotuned")
        assert bool(told) is (number == 0), [str(event) for event in log]
        assert all(event.chosen_us <= event.first_us for event in told) and not of_kind(log, "kernel_failed")
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_a_step_with_gradients():
    net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.LayerNorm(512), torch.nn.GELU()).cuda()
    fast = framejit.optimize(net, mode="max-autotune")
    x = torch.randn(64, 256, device="cuda")
    for _ in range(3):
        outcomes = []
        for call in (net, fast):
            net.zero_grad()
            call(x).square().mean().backward()
            outcomes.append([p.grad.clone() for p in net.parameters()])
        for expected, got in zip(*outcomes):
            torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)
