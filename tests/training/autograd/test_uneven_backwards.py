"""A backward of the program's that does not give for a sum of gradients the sum of what it gives for each, and gives
something for zeros: it runs once, with the gradient that eager gives it."""

import pytest
import torch
from torch import nn

import framejit

from support import seed


class Uneven(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return (gradient + 1) * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))

    def forward(self, x):
        y = Uneven.apply(self.w * self.v) * 3
        z = Uneven.apply(y) * x * self.v
        return y, z, Uneven.apply(y * z * self.w).sum()


def backward_from_the_loss(y, z, loss):
    loss.backward()


def backward_from_the_loss_and_what_leads_to_it(y, z, loss):
    (loss + y.sum()).backward()


def backward_from_what_leads_to_the_loss(y, z, loss):
    (y.sum() + z.sum()).backward()


def backward_with_a_hook(y, z, loss):
    y.register_hook(lambda gradient: gradient * 2)
    loss.backward()


BACKWARDS = (
    backward_from_the_loss, backward_from_the_loss_and_what_leads_to_it, backward_from_what_leads_to_the_loss,
    backward_with_a_hook,
)


def check(run, compiled_run, module):
    for number in range(4):
        x = torch.full((3,), number + 1.0)
        found = []
        for each in (run, compiled_run):
            results = [result.detach().clone() for result in each(x)]
            found.append(results + [parameter.grad for parameter in module.parameters()])
            module.zero_grad()
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("go_back", BACKWARDS)
def test_of_a_model_that_is_compiled_alone(go_back):
    seed(0)
    module = Net()
    compiled = framejit.optimize(module, backend="fuse")

    def run_of(forward):
        def run(x):
            results = forward(x)
            go_back(*results)
            return results

        return run

    check(run_of(module), run_of(compiled), module)


@pytest.mark.parametrize("go_back", BACKWARDS[:3])
def test_of_a_step(go_back):
    seed(0)
    module = Net()

    def run(x):
        results = module(x)
        go_back(*results)
        return results

    check(run, framejit.optimize(run, backend="fuse"), module)
