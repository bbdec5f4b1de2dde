"""Modes of gradients, autocast and checkpoints within graphs that are fused, and around them."""

import contextlib

import pytest
import torch

from tests.training.autograd.functions import chain, gradients

from twins import Twins, leaf


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_parts_without_gradients(mode):
    def fn(x, w):
        with mode():
            scale = (x * w).abs().mean()
        return (x @ w) / (scale.clone() + 1)

    Twins(fn, leaf(3, 3), leaf(3, 3)).both(gradients)


def test_gradients_inside_of_no_grad():
    def fn(x):
        with torch.enable_grad():
            return (x * 2).sin()

    def use(fn, x):
        x.grad = None
        with torch.no_grad():
            out = fn(x)
        out.sum().backward()
        return out, x.grad

    Twins(fn, leaf(4)).both(use)


def test_set_grad_enabled_inside():
    def fn(x, w):
        with torch.set_grad_enabled(False):
            h = x * w
        with torch.set_grad_enabled(True):
            return h + x.exp()

    Twins(fn, leaf(4), leaf(4)).both(gradients)


def test_detach_inside():
    Twins(lambda x: x * x.detach() + (x - x.detach()).abs(), leaf(4)).both(gradients)


def test_checkpoint():
    from torch.utils.checkpoint import checkpoint

    def fn(x, w):
        return checkpoint(lambda x, w: (x @ w).sin().exp(), x, w, use_reentrant=False).sum()

    Twins(fn, leaf(3, 3), leaf(3, 3)).both(gradients)


@pytest.mark.parametrize("around", [True, False])
def test_autocast(around):
    def inside(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ w).sin().float().sum()

    def plain(x, w):
        return (x @ w).sin().float().sum()

    def use(fn, x, w):
        x.grad = w.grad = None
        with torch.autocast("cpu", torch.bfloat16) if around else contextlib.nullcontext():
            out = fn(x, w)
        out.backward()
        return out.dtype, x.grad.dtype, (out.detach() * 10).round() / 10, x.grad.isfinite().all()

    Twins(plain if around else inside, leaf(8, 8, dtype=torch.float32), leaf(8, 8, dtype=torch.float32)).both(use)


def test_backward_within_autocast():
    def use(fn, x, w):
        x.grad = w.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            out = fn(x.double(), w.double())
            out.sum().backward()
        return x.grad, w.grad

    Twins(lambda x, w: (x * w).sin() * w, leaf(8, 8), leaf(8, 8)).both(use)


def test_scaled_gradients():
    def use(fn, x, w):
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = torch.optim.SGD([w], lr=0.1)
        optimizer.zero_grad()
        scaler.scale(fn(x, w).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return w.detach().clone()

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)
