"""`checkpoint_sequential` in steps: a checkpoint for each segment but the last."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential

from tests.training.autograd.steps import batch, both, loss_of, perceptron, updated


def make():
    module = perceptron()
    return module, torch.optim.Adam(module.parameters(), lr=0.01)


class InSegments(nn.Module):
    def __init__(self, module, segments, **options):
        super().__init__()
        self.module, self.segments, self.options = module, segments, options

    def forward(self, x):
        return checkpoint_sequential(self.module, self.segments, x, **self.options)


@pytest.mark.parametrize("segments", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"preserve_rng_state": False}])
def test_a_step_is_one_graph(segments, options):
    def step(module, optimizer, x, y):
        whole = InSegments(module, segments, use_reentrant=False, **options)
        return updated(optimizer, loss_of(whole, x, y))

    both(make, step, batch)


def test_of_functions_in_a_list_and_reentrant():
    def step(module, optimizer, x, y):
        whole = InSegments([module[0], torch.sin, lambda x: x * 2, module[3]], 2, use_reentrant=True)
        return updated(optimizer, loss_of(whole, x.requires_grad_(), y)).detach()

    both(make, step, batch)


def test_options_that_it_has_not():
    def step(module, optimizer, x, y):
        return updated(optimizer, loss_of(InSegments(module, 2, use_reentrant=False, more=3), x, y))

    both(make, step, batch, breaks=True)
