"""Hooks on tensors, and on what autograd saves, see what they see in eager."""

import torch

from tests.training.autograd.functions import chain, gradients

from twins import Twins, leaf


def test_hooks():
    def use(fn, x, w):
        seen = []
        x.grad = w.grad = None
        handles = [x.register_hook(lambda g: seen.append(g.sum().item()) or g * 2)]
        handles.append(w.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.sum().item())))
        out = fn(x, w)
        out.register_hook(lambda g: g + 1)
        out.sum().backward()
        for handle in handles:
            handle.remove()
        return sorted(round(value, 9) for value in seen), x.grad, w.grad

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


def test_an_exception_in_a_hook():
    def use(fn, x):
        x.grad = None

        def hook(g):
            raise RuntimeError("from the hook")

        handle = x.register_hook(hook)
        out = fn(x)
        try:
            out.sum().backward()
        finally:
            handle.remove()

    twins = Twins(lambda x: x.exp(), leaf(4))
    twins.both(use)
    twins.both(gradients)


def test_hooks_on_saved_tensors_see_what_eager_saves():
    def use(fn, x):
        seen = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.detach().clone()) or t, lambda t: t):
            out = fn(x)
        return seen, torch.autograd.grad(out.sum(), x)

    twins = Twins(lambda x: (x.exp() * x).tanh(), leaf(4))
    twins.both(gradients)
    twins.both(use)
