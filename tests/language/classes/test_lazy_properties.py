"""Lazy properties of torch.distributions: each distribution looks at those of its class to find out which parameters it
was not given."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import (
    Bernoulli,
    Categorical,
    MixtureSameFamily,
    Normal,
    OneHotCategorical,
    RelaxedOneHotCategorical,
)

import framejit

from support import check, seed


def categorical(x):
    given = Categorical(logits=x)
    action = given.sample()
    return action, given.log_prob(action), given.entropy(), given.probs


def bernoulli(x):
    return Bernoulli(logits=x).log_prob((x > 0).to(x.dtype)), Bernoulli(probs=x.sigmoid()).logits


def one_hot(x):
    return OneHotCategorical(probs=x.softmax(-1)).log_prob(torch.eye(3)), OneHotCategorical(logits=x).mean


def relaxed(x):
    return RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).rsample()


def mixture(x):
    return MixtureSameFamily(Categorical(logits=x[0]), Normal(x[1], x[2].exp())).log_prob(x.sum())


def refused(x):
    try:
        return Categorical(probs=x - 100)
    except ValueError as e:
        return str(e).splitlines()[0], x + 1


@pytest.mark.parametrize("fn", [categorical, bernoulli, one_hot, relaxed, mixture, refused])
def test_distributions(fn):
    seed()
    check(fn, torch.randn(3, 3), graphs=1)


def test_each_look_gives_another_object():
    def fn(x):
        one, other = Categorical.probs, Categorical.probs
        return (
            one is other, one is one, isinstance(one, property), type(one).__name__, one.fget.__name__,
            Categorical(logits=x).probs, one,
        )

    x = torch.randn(3)
    expected, got = fn(x), framejit.optimize(fn, backend="eager")(x)
    assert expected[:5] == got[:5]
    torch.testing.assert_close(expected[5], got[5])
    assert type(got[6]) is type(expected[6]) and got[6].fget is expected[6].fget


def test_a_step_of_a_policy():
    def step(weight, x):
        given = Categorical(logits=x @ weight)
        action = given.sample()
        loss = -(given.log_prob(action) * x[:, 0]).mean() - 0.01 * given.entropy().mean()
        loss.backward()
        return loss, action

    compiled = framejit.optimize(step, fullgraph=True)
    weights = [torch.ones(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    for number in range(3):
        outcomes = []
        for fn, weight in zip((step, compiled), weights):
            seed(number)
            outcomes.append((*fn(weight, torch.randn(5, 4, dtype=torch.float64)), weight.grad))
        torch.testing.assert_close(*outcomes)
