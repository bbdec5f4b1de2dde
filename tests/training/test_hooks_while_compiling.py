"""Compiling while a program runs (for new sizes, between parts) is nothing that hooks on what autograd saves see: those
of checkpoints, which compare what was saved, and those of the program."""

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import framejit

from support import seed
from twins import same

SIZES = (3, 4, 5, 6, 7, 9, 1, 3)


def plain(x, w):
    return ((x @ w).sin() * x.sum()).exp()


def in_parts(x, w):
    y = (x @ w).sin().exp()
    z = y.detach().requires_grad_()
    (v,) = torch.autograd.grad((z * z).sum(), z)
    return y * v


def sizes_of_data(x, w):
    y = x @ w
    return (y[y > 0] * 2).sin().sum() + y.sum()


def without(fn, x, w, log):
    return fn(x, w)


def checkpointed(fn, x, w, log):
    return checkpoint(fn, x, w, use_reentrant=False)


def nested(fn, x, w, log):
    return checkpoint(lambda a: checkpoint(fn, a, w, use_reentrant=False).tanh(), x * 2, use_reentrant=False)


def hooks_of(log):
    def pack(t):
        log.append(("saved", type(t).__name__, tuple(t.shape)))
        return t

    def unpack(t):
        log.append(("wanted", type(t).__name__, tuple(t.shape)))
        return t

    return saved_tensors_hooks(pack, unpack)


def logged(fn, x, w, log):
    with hooks_of(log):
        return fn(x, w)


def backward_under_hooks(fn, x, w, log):
    with hooks_of(log):
        made = fn(x, w)
        made.sum().backward(retain_graph=True)
        return made


def outcome(fn, around, n, number):
    seed(number)
    x, w = torch.randn(n, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    log = []
    made = around(fn, x, w, log)
    (made * made if number % 3 else made).sum().backward()
    return made.detach(), x.grad, w.grad, log


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("around", [checkpointed, nested, logged, backward_under_hooks])
@pytest.mark.parametrize("fn", [plain, in_parts, sizes_of_data])
def test_sizes_that_come_under_hooks(fn, around, dynamic):
    optimized = framejit.optimize(fn, backend="fuse", dynamic=dynamic)
    for number, n in enumerate(SIZES):
        same(outcome(fn, around, n, number), outcome(optimized, around, n, number))


@pytest.mark.parametrize("fn", [plain, in_parts, sizes_of_data])
def test_hooks_come_later(fn):
    """Compiled without hooks, called with them for other sizes, and without again."""
    optimized = framejit.optimize(fn, backend="fuse")
    for number, n in enumerate(SIZES):
        around = (without, checkpointed, logged)[number % 3]
        same(outcome(fn, around, n, number), outcome(optimized, around, n, number))
