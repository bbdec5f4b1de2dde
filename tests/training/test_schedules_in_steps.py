"""A training step that ends with its schedule: few entries serve all of it, and rates are eager's."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn, optim
from torch.optim import lr_scheduler

import framejit

from support import of_kind, recorded, seed

SCHEDULES = {
    # an entry for each milestone, one for all steps between, and two to begin with
    "milestones": (lambda o: lr_scheduler.MultiStepLR(o, [4, 9, 14], gamma=0.5), 6),
    "exponential": (lambda o: lr_scheduler.ExponentialLR(o, 0.95), 3),
    "cosine": (lambda o: lr_scheduler.CosineAnnealingLR(o, 10), 4),
    "warm-up, then the inverse of a root": (
        lambda o: lr_scheduler.LambdaLR(o, lambda n: min((n + 1) ** -0.5, (n + 1) * 8**-1.5)), 5
    ),
    "up, then down": (lambda o: lr_scheduler.LambdaLR(o, lambda n: min((n + 1) / 5, (20 - n) / 15)), 5),
    "one cycle": (lambda o: lr_scheduler.OneCycleLR(o, 0.2, total_steps=30), 4),
    "many cycles": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3), 3),
    "cycles half as high each": (lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="triangular2"), 3),
    "cycles that fade": (
        lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=3, mode="exp_range", gamma=0.99), 3
    ),
}


def outcomes(schedule, compile_step):
    seed(0)
    module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
    optimiser = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    scheduled = schedule(optimiser)

    def step(x, y):
        optimiser.zero_grad()
        loss = F.cross_entropy(module(x), y)
        loss.backward()
        optimiser.step()
        scheduled.step()
        return loss.detach()

    run, found = compile_step(step), []
    for _ in range(20):
        loss = run(torch.randn(4, 5), torch.randint(0, 3, (4,)))
        found.append((loss, optimiser.param_groups[0]["lr"]))
    return run, found


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_rate_that_falls_while_the_loss_does_not(mode):
    def outcome(compile_step):
        seed(0)
        module = nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3))
        optimiser = optim.Adam(module.parameters(), lr=0.1)
        schedule = lr_scheduler.ReduceLROnPlateau(optimiser, mode, patience=1, cooldown=2, factor=0.5)

        def step(x, y):
            optimiser.zero_grad()
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optimiser.step()
            schedule.step(loss.detach())
            return loss.detach()

        run, found = compile_step(step), []
        for _ in range(30):
            loss = run(torch.randn(4, 5), torch.randint(0, 3, (4,)))
            found.append((loss, schedule.best, schedule.num_bad_epochs, schedule.last_epoch, *schedule.get_last_lr()))
        return found

    expected = outcome(lambda step: step)
    with recorded() as log:
        found = outcome(lambda step: framejit.optimize(step, backend="fuse"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert len(of_kind(log, "capture_started")) <= 12
    assert len({event.fields["line"] for event in of_kind(log, "graph_break")}) == 1


def test_cycles_that_go_on_by_parts_of_epochs():
    """As torch's documentation has it: `schedule.step(epoch + i / count)`."""

    def outcome(compile_step):
        seed(0)
        module = nn.Linear(5, 3)
        optimiser = optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
        schedule = lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 2, 2)

        def step(x, y, epoch, i, count):
            optimiser.zero_grad()
            F.cross_entropy(module(x), y).backward()
            optimiser.step()
            schedule.step(epoch + i / count)
            return schedule.last_epoch, schedule.T_i

        run, found = compile_step(step), []
        for number in range(40):
            told = run(torch.randn(4, 5), torch.randint(0, 3, (4,)), *divmod(number, 4), 4)
            found.append((*told, *schedule.get_last_lr()))
        return run, found

    _, expected = outcome(lambda step: step)
    compiled, found = outcome(lambda step: framejit.optimize(step, backend="eager"))
    assert found == expected
    assert len(compiled.entries) <= 6  # three to begin with, and one for each cycle


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_step_with_its_schedule(name):
    schedule, entries = SCHEDULES[name]
    _, expected = outcomes(schedule, lambda step: step)
    compiled, found = outcomes(schedule, lambda step: framejit.optimize(step, backend="fuse"))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert len(compiled.entries) <= entries


class Trainer:
    """Has its optimiser as an attribute: a schedule wraps `optimiser.step`, and leads to it by a weak reference."""

    def __init__(self):
        seed(0)
        self.module = nn.Linear(5, 3)
        self.optimiser = optim.AdamW(self.module.parameters(), lr=0.1)
        self.schedule = lr_scheduler.StepLR(self.optimiser, 3, gamma=0.5)

    def step(self, x, y):
        self.optimiser.zero_grad()
        loss = F.cross_entropy(self.module(x), y)
        loss.backward()
        self.optimiser.step()
        self.schedule.step()
        return loss.detach()


def test_a_step_of_an_object_is_one_graph():
    def outcome(compile_step):
        trainer = Trainer()
        step = compile_step(trainer.step)
        return [(step(torch.ones(4, 5), torch.arange(4) % 3), *trainer.schedule.get_last_lr()) for _ in range(8)]

    expected = outcome(lambda step: step)
    with recorded() as log:
        found = outcome(lambda step: framejit.optimize(step, backend="eager", fullgraph=True))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)
    assert not of_kind(log, "graph_break")
