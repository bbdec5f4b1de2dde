"""Graphs that are fused keep for the backward no more than eager, and nothing behind it."""

import gc
import weakref

import torch

import framejit
from tests.training.autograd.functions import chain

from twins import Twins, leaf


def test_nothing_is_kept_alive():
    x, w = leaf(4, 5), leaf(5, 3)
    compiled = framejit.optimize(chain, backend="fuse")
    for _ in range(3):
        given = x.detach().clone().requires_grad_()
        dead = weakref.ref(given)
        out = compiled(given, w)
        out.sum().backward()
        del given, out
        gc.collect()
        assert dead() is None


def test_inputs_end_with_the_backward():
    """What autograd saved goes with the backward, though the result lives on."""

    def use(fn, x, w):
        given = x * 1.0
        dead = weakref.ref(given)
        result = fn(given, w).sum()
        del given
        kept = dead() is not None
        result.backward()
        return kept, dead() is None, result.detach()

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


def test_memory_that_is_kept_is_no_more_than_eagers():
    saved = {}

    def measured(name, fn, *inputs):
        kept = []
        out = fn(*inputs)
        if name == "compiled":
            kept = [t.untyped_storage().nbytes() for t in out.grad_fn.saved_tensors]
        saved[name] = sum(kept)

    def fn(x):
        for _ in range(8):
            x = (x.sin() * 2).exp().tanh()
        return x

    compiled = framejit.optimize(fn, backend="fuse")
    x = leaf(100)
    for _ in range(2):
        measured("compiled", compiled, x)
    eager = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: eager.append(t) or t, lambda t: t):
        fn(x)
    assert 0 < saved["compiled"] <= 2 * 800 < 8 * len({t.data_ptr() for t in eager}) * 100
