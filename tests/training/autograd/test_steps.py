"""Steps of training, several calls before a backward, and backwards in another order than their calls."""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.training.autograd.functions import chain

import forked
from twins import Twins, leaf


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6)
        self.end = nn.Linear(6, 4)

    def forward(self, x):
        h = F.relu(self.norm(self.conv(x)), inplace=True)
        h = F.dropout(h, 0.3, self.training)
        return self.end(h.mean((2, 3)))


def train(module, x):
    return module(x)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop])
def test_steps_of_a_module_with_buffers_and_random_numbers(optimizer):
    made = {}

    def use(fn, module, x):
        own = made.setdefault(id(module), optimizer(module.parameters(), lr=0.01))
        loss = fn(module, x + module.norm.num_batches_tracked).square().mean()
        own.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        own.step()
        return loss, [p.detach().clone() for p in module.parameters()], [b.clone() for b in module.buffers()]

    Twins(train, torch.randn(2, 3, 8, 8, dtype=torch.float64), module=Block().double()).both(use, calls=5)


def test_evaluation_behind_training():
    module = Block().double()
    twins = Twins(train, torch.randn(2, 3, 8, 8, dtype=torch.float64), module=module)

    def use(fn, module, x):
        module.zero_grad()
        module.train()
        fn(module, x).sum().backward()
        module.eval()
        out = fn(module, x)
        out.sum().backward()
        with torch.no_grad():
            return out, fn(module, x), [p.grad for p in module.parameters()]

    twins.both(use)


def test_accumulation_over_several_calls():
    def use(fn, x, w):
        x.grad = w.grad = None
        for part in x.split(2):
            fn(part, w).sum().backward()
        return x.grad, w.grad

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


def test_calls_whose_backwards_come_in_another_order():
    def use(fn, x, w):
        first, second = fn(x, w).sum(), fn(x * 2, w).sum()
        return torch.autograd.grad(first, w), torch.autograd.grad(second, w)

    Twins(chain, leaf(4, 5), leaf(5, 3)).both(use)


def test_second_process_runs_from_the_cache(tmp_path):
    script = """
import torch, framejit
from framejit.backends.fuse.account.stage_counts import stages
@framejit.optimize
def f(x, w):
    return (x @ w).sin().square().sum()
x, w = torch.ones(4, 5, requires_grad=True), torch.ones(5, 3, requires_grad=True)
for _ in range(2):
    f(x, w).backward()
print(stages["lower"], stages["record"], float(w.grad.sum()))
"""
    runs = [
        forked.run(["-c", script], env={**os.environ, "FRAMEJIT_CACHE_DIR": str(tmp_path)}, timeout=300)
        for _ in range(2)
    ]
    (lowered, recorded, total), again = (run.stdout.split() for run in runs)
    assert (lowered, recorded) == ("2", "2") and again == ["0", "2", total]
