"""Steps that give parameters other memory by `parameter.data = other`, behind writes into them or not: averages of
weights, optimizers that go somewhere and come back, weights put in for an evaluation."""

import copy

import pytest
import torch
from torch import nn, optim

from tests.training.autograd.steps import batch, both, loss_of, perceptron


class ThereAndBack(optim.Optimizer):
    """Steps by the gradients that there are some way up the loss."""

    def __init__(self, parameters, way=0.05, **options):
        super().__init__(parameters, {"way": way, **options})
        self.inner = optim.SGD(self.param_groups, **options)
        self.param_groups = self.inner.param_groups

    @torch.no_grad()
    def go(self):
        parameters = [p for group in self.param_groups for p in group["params"]]
        length = torch.stack([p.grad.norm() for p in parameters]).norm()
        for p in parameters:
            self.state[p]["before"] = p.data.clone()
            p.add_(p.grad * (self.param_groups[0]["way"] / (length + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def come_back(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["before"]
        self.inner.step()
        self.zero_grad()

    @torch.no_grad()
    def step(self, closure):
        self.go()
        torch.enable_grad()(closure)()
        self.come_back()


def make():
    module = perceptron()
    return module, ThereAndBack(module.parameters(), lr=0.1, momentum=0.9)


def in_two(module, optimizer, x, y):
    loss = loss_of(module, x, y)
    loss.backward()
    optimizer.go()
    loss_of(module, x, y).backward()
    optimizer.come_back()
    return loss.detach()


def with_a_closure(module, optimizer, x, y):
    def closure():
        loss = loss_of(module, x, y)
        loss.backward()
        return loss

    loss = closure()
    optimizer.step(closure)
    return loss.detach()


@pytest.mark.parametrize("step", [in_two, with_a_closure])
def test_steps_that_go_and_come_back(step):
    both(make, step, batch, calls=5)


class Average:
    def __init__(self, module):
        self.weights = {name: p.data.clone() for name, p in module.named_parameters()}
        self.kept, self.number = {}, 0

    def update(self, module):
        self.number += 1
        share = min(0.9, (1 + self.number) / (10 + self.number))
        for name, p in module.named_parameters():
            self.weights[name] = share * self.weights[name] + (1 - share) * p.data

    def put_in(self, module):
        for name, p in module.named_parameters():
            self.kept[name], p.data = p.data, self.weights[name]

    def put_back(self, module):
        for name, p in module.named_parameters():
            p.data = self.kept[name]
        self.kept = {}


def make_average():
    module = perceptron()
    return module, optim.Adam(module.parameters(), lr=0.01), Average(module)


def evaluated(module, optimizer, average, x, y):
    optimizer.zero_grad()
    loss = loss_of(module, x, y)
    loss.backward()
    optimizer.step()
    average.update(module)
    average.put_in(module)
    with torch.no_grad():
        there = loss_of(module, x, y)
    average.put_back(module)
    return loss.detach(), there, average.weights


def test_averages_that_are_put_in_and_back():
    both(make_average, evaluated, batch, calls=5)


class Momentum(nn.Module):
    """A second encoder follows the first; a batch is shuffled for it."""

    def __init__(self):
        super().__init__()
        self.first = perceptron()
        self.second = copy.deepcopy(self.first).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            for ours, theirs in zip(self.second.parameters(), self.first.parameters()):
                ours.data = ours.data * 0.9 + theirs.data * 0.1
            order = torch.randperm(len(x))
            other = self.second(x[order])[order.argsort()]
        return self.first(x) + other


def followed(module, optimizer, x, y):
    optimizer.zero_grad()
    loss = loss_of(module, x, y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def test_an_encoder_that_follows_another():
    def both_encoders():
        module = Momentum()
        return module, optim.Adam(module.first.parameters(), lr=0.01)

    both(both_encoders, followed, batch)


def moved_before_what_raises(module, optimizer, x, y, places):
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(0.5)
            p.data = p + 1
            p.add_(1)
    return loss_of(module, x[places], y)


def test_labels_and_places_that_do_not_exist():
    """What was moved is back in its place when plain Python does all of it again."""

    def draw():
        bad = (0, 0, 1, 0, 2, 1)[torch.initial_seed()]
        x, y = batch(3)
        return x, y + 5 * (bad == 1), torch.tensor([0, 2, 9 if bad == 2 else 1])

    both(make, moved_before_what_raises, draw, calls=6, breaks=True)
