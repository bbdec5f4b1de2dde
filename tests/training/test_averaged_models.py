"""Averages of weights that a training step keeps: whether it is the first is known before the graph runs."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn

import framejit

from support import of_kind, recorded, seed

AVERAGES = {
    "equal weights": lambda module: AveragedModel(module),
    "exponential": lambda module: AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True),
    "one by one": lambda module: AveragedModel(module, avg_fn=lambda mean, new, n: mean + (new - mean) / (n + 2)),
}


def outcome(make, compile_step):
    seed()
    module = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Tanh(), nn.Linear(7, 3))
    averaged = make(module)
    optimiser = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    schedule = SWALR(optimiser, swa_lr=0.05, anneal_epochs=5)

    def step(x, y):
        optimiser.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        optimiser.step()
        averaged.update_parameters(module)
        schedule.step()
        return loss.detach()

    run, found = compile_step(step), []
    for number in range(16):
        if number == 8:
            state = copy.deepcopy(averaged.state_dict())
        if number == 11:
            averaged.n_averaged.zero_()
        if number == 13:
            averaged.load_state_dict(state)
        loss = run(torch.randn(4, 5), torch.randint(0, 3, (4,)))
        found.append([loss, *(each.detach().clone() for each in averaged.state_dict().values())])
    return found


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", AVERAGES)
def test_a_step_with_averages_of_its_weights(name, backend):
    expected = outcome(AVERAGES[name], lambda step: step)
    with recorded() as log:
        found = outcome(AVERAGES[name], lambda step: framejit.optimize(step, backend=backend))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not of_kind(log, "graph_break")
    assert len(of_kind(log, "capture_started")) <= 5  # one begins again at 0, two are the schedule's
