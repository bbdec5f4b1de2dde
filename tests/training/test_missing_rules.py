"""Operations of which torch's fakes know nothing, in graphs that need gradients: margins, samples, quantisation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Beta, Binomial, Dirichlet, Gamma, StudentT

from twins import Twins

CLASSES = torch.tensor([0, 1, 2])
LABELS = torch.tensor([[0, 1, -1], [2, -1, 0], [1, 0, 2]])
SCALES, ZEROS = torch.tensor([0.05, 0.1, 0.2]), torch.zeros(3)


def beta(x):
    given = Beta(x.exp(), 2.0)
    drawn = given.rsample()
    return given.log_prob(drawn.clamp(0.01, 0.99)), drawn, given.entropy()


FUNCTIONS = {
    "margins": lambda x: F.multi_margin_loss(x, CLASSES, p=2, weight=torch.tensor([1.0, 2.0, 3.0])),
    "margins of columns": lambda x: F.multi_margin_loss(x.t(), CLASSES, reduction="none"),
    "several labels": lambda x: F.multilabel_margin_loss(x.t() * 2, LABELS),
    "quantised": lambda x: torch.fake_quantize_per_tensor_affine(x.t() * 2, 0.05, 0, -128, 127).exp(),
    "quantised by a tensor": lambda x: (
        torch.fake_quantize_per_tensor_affine(x * 2, torch.tensor(0.05), torch.tensor(0), -9, 9).exp()
    ),
    "quantised by channels": lambda x: torch.fake_quantize_per_channel_affine(x * 2, SCALES, ZEROS, 1, -9, 9).sin(),
    "a scale that is learned": lambda x: (
        torch._fake_quantize_learnable_per_tensor_affine(x * 2, x[0, :1].abs() + 0.01, x[1, :1].abs(), -9, 9, 1.0).sin()
    ),
    "scales that are learned": lambda x: (
        torch._fake_quantize_learnable_per_channel_affine(x * 2, x[0].abs() + 0.01, x[1].abs(), 0, -9, 9, 1.0).sin()
    ),
    "beta": beta,
    "dirichlet": lambda x: Dirichlet(x.exp().t()).rsample().sin(),
    "gamma": lambda x: Gamma(x.exp(), 1.5).rsample().log1p(),
    "binomial": lambda x: Binomial(5, logits=x.t()).sample() + x,
    "student": lambda x: StudentT(x.exp() + 1).rsample().atan(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager(name):
    def use(fn, x):
        x.grad = None
        results = fn(x)
        results = results if isinstance(results, tuple) else (results,)
        sum((result * torch.arange(1.0, result.numel() + 1).view(result.shape)).sum() for result in results).backward()
        return results, x.grad, torch.rand(())

    Twins(FUNCTIONS[name], torch.randn(3, 3).requires_grad_()).both(use, calls=4)


@pytest.mark.parametrize("name", ["margins", "several labels", "quantised"])
def test_a_backward_inside(name):
    def fn(x):
        x.grad = None
        loss = FUNCTIONS[name](x).square().sum()
        loss.backward()
        return loss, x.grad * 2

    twins = Twins(fn, torch.randn(3, 3).requires_grad_())
    twins.both(lambda fn, x: (fn(x), x.grad))
