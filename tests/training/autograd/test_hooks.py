"""Hooks on tensors, and on what autograd saves, see what they see in eager, in its order."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
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
        return [round(value, 9) for value in seen], x.grad, w.grad

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


class Blocks(nn.Module):
    def __init__(self, count):
        super().__init__()
        self.embedding = nn.Embedding(9, 8)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(count)
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 9)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), tokens.flatten())


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(6, 6)  # what is made first is not what is used first
        self.first, self.weight = nn.Linear(6, 6), nn.Parameter(torch.ones(6))
        self.bias = nn.Parameter(torch.ones(3, 6))

    def forward(self, x):
        h = self.first(x) + self.last(x) * self.weight
        return self.last(h) + h + self.bias, torch.einsum("bi,i->b", h, self.weight)


def images():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, groups=2), nn.GroupNorm(2, 4),
        nn.Flatten(), nn.Linear(64, 3)
    )


HEARD = {
    "one linear layer": (lambda: nn.Linear(6, 3), lambda: torch.randn(4, 6)),
    "linear layers": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), lambda: torch.randn(4, 6)),
    "branches": (Branches, lambda: torch.randn(3, 6)),
    "convolutions": (images, lambda: torch.randn(2, 1, 8, 8)),
    "recurrent": (lambda: nn.GRU(6, 6, 2), lambda: torch.randn(5, 2, 6)),
    "few layers alike": (lambda: Blocks(2), lambda: torch.randint(0, 9, (2, 4))),
    "many layers alike": (lambda: Blocks(11), lambda: torch.randint(0, 9, (2, 4))),
}


@pytest.mark.parametrize("of_all", [False, True])
@pytest.mark.parametrize("name", HEARD)
def test_the_order_of_hooks_on_parameters(name, of_all):
    make, given = HEARD[name]
    model, known = make(), []
    for module in (copy.deepcopy(model), model):
        seen = []
        for key, parameter in module.named_parameters():
            parameter.register_hook(lambda _, key=key, seen=seen: seen.append(key))
            parameter.register_post_accumulate_grad_hook(lambda _, key=key, seen=seen: seen.append(f"{key} is there"))
        run = framejit.optimize(module, backend="fuse") if module is model else module
        for _ in range(2):
            result = run(given())
            results = result if isinstance(result, tuple) else (result,)
            for each in results if of_all else results[-1:]:
                each.square().sum().backward(retain_graph=True)
            seen.append("again")
        known.append(seen)
    assert known[0] == known[1]
    assert not any(report.reason for report in framejit.inspect(run).graphs)


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
