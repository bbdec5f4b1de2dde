"""Tensors that gradients go through on to what was computed before: their sizes are left open as any others."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import of_kind, recorded, seed

FUNCTIONS = {
    "a mean": lambda z, w: z.mean() * 2,
    "a product": lambda z, w: torch.tanh(z @ w).sum(0),
    "sizes in the program": lambda z, w: (z / z.shape[0] + len(z)).reshape(-1)[: z.shape[0] // 2 + 1],
    "a norm": lambda z, w: F.layer_norm(z, z.shape[1:]).square(),
    "more than one": lambda z, w: (z.sum(), torch.cat([z, z * 2]), z.unsqueeze(1)),
    "a view that is written": lambda z, w: z.clone().mul_(2)[1:].add_(1),
    "what it is": lambda z, w: (z * 2, z.is_leaf, z.requires_grad, z.dim()),
    "without a gradient": lambda z, w: z.detach().sum() + z.sum(),
    "transposed": lambda z, w: (w.T @ z.T).relu(),
}


def outcome(fn, kind, dtype):
    found = []
    for rows in (4, 7, 8, 6, 5, 3, 9, 2):
        seed(rows)
        x = torch.randn(rows, 5, dtype=dtype, requires_grad=True)
        w = torch.randn(5, 3, dtype=dtype, requires_grad=True)
        given = kind(x)
        result = fn(given, w)
        parts = [part for part in (result if isinstance(result, tuple) else (result,))]
        tensors = [part for part in parts if torch.is_tensor(part)]
        sum(part.square().sum() for part in tensors if part.requires_grad).backward()
        found.append((parts, x.grad, w.grad, given.grad if given.is_leaf else None))
    return found


KINDS = {
    "a leaf": lambda x: x,
    "of an operation": lambda x: x * 3,
    "by a mask": lambda x: x[torch.arange(len(x)) != 1],
    "transposed": lambda x: (x.T * 2).T,
    "a part": lambda x: (x * 2)[:, :5],
}


VIEWS = ("transposed", "a part")
"""Of which autograd knows more than that gradients go through: their sizes are assumed."""


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_that_change(name, kind, backend):
    fn = FUNCTIONS[name]
    fast = framejit.optimize(fn, backend=backend)
    expected = outcome(fn, KINDS[kind], torch.float64)
    found = outcome(fast, KINDS[kind], torch.float64)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert kind in VIEWS or len(fast.entries) <= 5


def test_written_in_place():
    def fn(z):
        z.mul_(2)
        z[0] += 1
        return z.sum()

    fast = framejit.optimize(fn, backend="fuse")
    for rows in (4, 7, 8, 6):
        outcomes = []
        for each in (fn, fast):
            x = torch.ones(rows, 2, dtype=torch.float64, requires_grad=True)
            z = x * 3
            each(z).backward()
            outcomes.append((z.detach(), x.grad, z._version))
        torch.testing.assert_close(*outcomes)


def test_a_loss_of_what_a_mask_leaves():
    def train(compile_step):
        seed(0)
        module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()
        optimiser = torch.optim.Adam(module.parameters(), lr=0.05)

        def step(x, y, mask):
            loss = F.cross_entropy(module(x), y, reduction="none")[mask].mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss.detach()

        run, found = compile_step(step), []
        for n in range(14):
            mask = torch.rand(9) > 0.1 * (n % 8)
            mask[:2] = True
            found.append(run(torch.randn(9, 5, dtype=torch.float64), torch.arange(9) % 3, mask))
        return found, [p.detach() for p in module.parameters()]

    expected = train(lambda step: step)
    with recorded() as log:
        found = train(lambda step: framejit.optimize(step, backend="fuse"))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    assert len(of_kind(log, "capture_started")) <= 7
