"""Parameters that a step freezes and thaws: the step stays one graph, and all is as in eager."""

import torch
import torch.nn.functional as F
from torch import nn

import framejit
from tests.training.autograd.steps import both

from support import seed
from twins import same


def toggle(module, on):
    for parameter in module.parameters():
        parameter.requires_grad_(on)


def networks():
    first = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 6)).double()
    second = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).double()
    return first, second, torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), 0.1, momentum=0.9)


def adversaries(made, judge, of_made, of_judge, real, noise):
    toggle(judge, True)
    of_judge.zero_grad()
    fake = made(noise)
    loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
    loss.backward()
    of_judge.step()
    toggle(judge, False)
    of_made.zero_grad()
    other = F.softplus(-judge(fake)).mean()
    other.backward()
    of_made.step()
    return loss.detach(), other.detach(), [p.requires_grad for p in judge.parameters()]


def pairs():
    return torch.randn(5, 6, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)


def test_a_network_that_is_frozen_for_the_other():
    both(networks, adversaries, pairs)


def test_a_network_that_is_frozen_before_and_behind():
    """Gradients are asked for inside of a leaf that the step makes anew each time."""
    def frozen():
        made = networks()
        toggle(made[1], False)
        return made

    both(frozen, adversaries, pairs)


def test_an_attribute_that_is_set():
    def step(made, judge, of_made, of_judge, real, noise):
        for parameter in judge.parameters():
            parameter.requires_grad = False
        judge(made(noise)).sum().backward()
        seen = [(p.requires_grad, p.is_leaf, p.grad is None) for p in judge.parameters()]
        for parameter in judge.parameters():
            parameter.requires_grad = True
        judge(made(noise) + real).square().sum().backward()
        of_made.step()
        of_judge.step()
        return seen, [(p.requires_grad, p.grad is None) for p in judge.parameters()]

    both(networks, step, pairs)


def test_a_loss_from_before_the_change():
    """Autograd adds nothing up in what is frozen by then."""
    def step(made, judge, of_made, of_judge, real, noise):
        early = judge(made(noise)).sum()
        toggle(judge, False)
        early.backward()
        toggle(judge, True)
        return early.detach(), [p.grad is None for p in judge.parameters()]

    both(networks, step, pairs, breaks=True)


def test_a_loss_from_before_and_behind():
    def step(made, judge, of_made, of_judge, real, noise):
        early = judge(real).sum()
        toggle(judge, False)
        between = judge(made(noise))
        toggle(judge, True)
        (early + between.square().sum() + judge(real).exp().sum()).backward()
        return early.detach()

    both(networks, step, pairs)


def test_results_that_lead_to_what_was_thawed():
    """Whoever is given these may go backwards to the parameters themselves: the graph breaks at the change."""
    def frozen():
        made = networks()
        toggle(made[1], False)
        return made

    def step(made, judge, of_made, of_judge, real, noise):
        toggle(judge, True)
        return judge(real + made(noise)).sum()

    def outside(inner, made, judge, of_made, of_judge, real, noise):
        loss = inner(made, judge, of_made, of_judge, real, noise)
        loss.backward()
        toggle(judge, False)
        return loss.detach(), [p.grad.clone() for p in judge.parameters()]

    for backend in ("eager", "fuse"):
        framejit.reset()
        outcomes = []
        for inner in (step, framejit.optimize(step, backend=backend)):
            seed()
            made = frozen()
            outcomes.append([outside(inner, *made, *pairs()) for _ in range(3)])
        same(*outcomes)


def test_a_written_result_that_leads_to_what_was_thawed():
    def step(weight, kept, x):
        weight.requires_grad_()
        kept.add_((weight * x).sum())
        return kept.requires_grad

    def make():
        return nn.Parameter(torch.ones(3), requires_grad=False), torch.zeros(())

    def draw():
        return (torch.randn(3),)

    def before(number, weight, kept):
        kept.detach_()
        weight.requires_grad_(False)

    both(make, step, draw, breaks=True, before=before)


def test_what_can_not_be_frozen():
    def step(module, x):
        hidden = module(x)
        hidden.requires_grad_(False)
        return hidden

    both(lambda: (nn.Linear(3, 3).double(),), step, lambda: (torch.randn(2, 3, dtype=torch.float64),), breaks=True)


def test_an_int_that_is_to_have_gradients():
    def step(counts):
        counts.requires_grad_()
        return counts

    both(lambda: (torch.arange(3),), step, breaks=True)


def test_layers_alike_of_which_one_is_frozen():
    def make():
        return nn.ModuleList([nn.Linear(4, 4) for _ in range(4)]).double(), torch.zeros((), dtype=torch.float64)

    def step(layers, unused, x):
        toggle(layers[2], False)
        for layer in layers:
            x = layer(x).tanh()
        x.sum().backward()
        toggle(layers[2], True)
        return [p.grad is None for p in layers.parameters()]

    both(make, step, lambda: (torch.randn(2, 4, dtype=torch.float64),))


def test_a_frozen_scale_of_a_norm():
    def step(norm, optimizer, x, frozen):
        norm.weight.requires_grad_(not frozen)
        optimizer.zero_grad()
        norm(x).square().sum().backward()
        optimizer.step()
        return norm.weight.requires_grad

    def make():
        norm = nn.LayerNorm(4).double()
        return norm, torch.optim.AdamW(norm.parameters())

    def draw():
        return torch.randn(3, 4, dtype=torch.float64), bool(torch.rand(()) > 0.5)

    both(make, step, draw, calls=6)
