"""Generators that the program made draw in the graph what they draw in plain Python, and are left in the same state."""
from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import torch

import framejit

OWN = torch.Generator()


class Same:
    """Calls a function of the program, compiled or not, from the same states, and compares what it leaves."""

    def __init__(self, fn, **options):
        self.fn, self.fast = fn, framejit.optimize(fn, **options)

    def call(self, make, *generators, seed=3):
        found = []
        for run in (self.fn, self.fast):
            torch.manual_seed(seed)
            for generator in (OWN, *generators):
                generator.manual_seed(seed)
            given = make()
            try:
                result = run(*given)
            except Exception as e:
                result = type(e), str(e)
            states = [g.get_state().tolist() for g in (OWN, *generators, torch.default_generator)]
            found.append((repr(result), repr(given), [t._version for t in given if type(t) is torch.Tensor], states))
        assert found[0] == found[1]

    def expect(self, graphs):
        if not torch.Generator.__weakrefoffset__:
            return  # such generators break the graph
        assert len(framejit.inspect(self.fast).graphs) == graphs


def image():
    return (torch.linspace(-1, 1, 6).view(2, 3),)


def factories(x):
    size = x.shape
    return (
        torch.rand(size, generator=OWN), torch.rand(2, 3, generator=OWN, dtype=torch.float64),
        torch.rand(size=(2,), generator=OWN, dtype=torch.bfloat16), torch.randn([3], generator=OWN, device="cpu"),
        torch.randint(3, (2, 2), generator=OWN), torch.randint(-2, 3, (9,), generator=OWN, dtype=torch.float32),
        torch.randint(high=4, size=(20,), generator=OWN), torch.randint(low=2, high=4, size=(5,), generator=OWN),
        torch.randperm(7, generator=OWN), torch.randperm(40, generator=OWN, dtype=torch.int32), torch.rand(2),
    )


def of_tensors(x):
    return (
        torch.normal(0.0, 2.0, (4,), generator=OWN), torch.normal(0, 2, size=(20,), generator=OWN),
        torch.normal(x, 2.0, generator=OWN), torch.bernoulli(x.sigmoid(), generator=OWN),
        torch.bernoulli(x, 0.3, generator=OWN), x.sigmoid().bernoulli(generator=OWN),
        x.exp().multinomial(2, generator=OWN), torch.multinomial(x.exp(), 4, True, generator=OWN),
        torch.multinomial(x.exp(), num_samples=1, generator=OWN),
    )


def methods(x):
    y = x.clone()
    found = [
        y.normal_(generator=OWN).clone(), y.normal_(1, std=2, generator=OWN).clone(),
        y.uniform_(generator=OWN).clone(), y.uniform_(2, to=3, generator=OWN).clone(),
        y.bernoulli_(generator=OWN).clone(), y.random_(generator=OWN).clone(), y.random_(2, 9, generator=OWN).clone(),
        y.exponential_(2, generator=OWN).clone(), y.cauchy_(generator=OWN).clone(),
        y.geometric_(0.3, generator=OWN).clone(), y.log_normal_(generator=OWN).clone(),
    ]
    return found, y, y._version


def written(x):
    x.normal_(generator=OWN)
    torch.rand(3, generator=OWN)  # which nobody uses
    return x._version


def initialized(x):
    torch.nn.init.xavier_uniform_(x, generator=OWN)
    torch.nn.init.kaiming_normal_(x, generator=OWN)
    torch.nn.init.trunc_normal_(x, generator=OWN)
    return x * 2


def seeded_again(x):
    first = torch.rand(2, generator=OWN)
    same = OWN.manual_seed(5)
    return first, torch.rand(2, generator=same), same is OWN, OWN.manual_seed(-7) is OWN, x.normal_(generator=OWN)


def with_torchs_own(x):
    return torch.rand(3) + torch.rand(3, generator=torch.default_generator) + torch.rand(3, generator=OWN)


@pytest.mark.parametrize("options", [{}, {"backend": "eager"}, {"dynamic": True}])
@pytest.mark.parametrize("fn", [factories, of_tensors, methods, written, initialized, seeded_again, with_torchs_own])
def test_numbers_are_drawn_by_one_graph(fn, options):
    same = Same(fn, **options)
    for seed in range(3):
        same.call(image, seed=seed)
    if not options:
        same.expect(graphs=1)


def laid_out_otherwise(x):
    x[:, 1].normal_(generator=OWN)
    x.t().uniform_(generator=OWN)
    return x.expand(2, 2, 3).clone().transpose(0, 1).exponential_(generator=OWN)


def raises_behind(x):
    x.normal_(generator=OWN)
    return x[(x * 0 + 50).long()]


def refused(x):
    return torch.rand(3, generator=OWN).uniform_(5, 1, generator=OWN)


def refused_for_numbers(x):
    return torch.multinomial(x * 0 - 1, 2, generator=OWN)


def with_gradients(x):
    x = x.clone().requires_grad_()
    (x * torch.rand(2, 3, generator=OWN)).sum().backward()
    return x.grad


def seeded_by_no_int(x):
    torch.rand(1, generator=OWN)
    OWN.manual_seed(2**64)


def seeded(x):
    OWN.manual_seed(5)
    first, state = torch.rand(3, generator=OWN), OWN.get_state()
    second = torch.rand(3, generator=OWN)
    OWN.set_state(state)
    return first, second, torch.rand(3, generator=OWN), OWN.initial_seed()


@pytest.mark.parametrize(
    "fn", [laid_out_otherwise, raises_behind, refused, refused_for_numbers, with_gradients, seeded_by_no_int, seeded]
)
def test_what_graphs_do_not_draw(fn):
    same = Same(fn)
    for seed in range(4):
        same.call(image, seed=seed)


def with_generator(generator):
    return *image(), generator


@pytest.mark.skipif(not torch.Generator.__weakrefoffset__, reason="such generators break the graph")
def test_another_generator_is_another_graph():
    other = torch.Generator()
    same = Same(lambda x, generator: x + torch.rand(3, generator=generator) + torch.rand(3, generator=OWN))
    for generator in (OWN, other, OWN, other):
        same.call(partial(with_generator, generator), other)
    same.expect(graphs=2)
    gone = weakref.ref(other)
    del other, generator, same
    gc.collect()
    assert gone() is None


def test_generators_of_modules():
    class Noise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.generator = torch.Generator()

        def forward(self, x):
            return x + torch.rand(x.shape, generator=self.generator)

    layers = torch.nn.ModuleList(Noise() for _ in range(12))

    def fn(x):
        for layer in layers:
            x = layer(x)
        return x

    same = Same(fn)
    for _ in range(3):
        same.call(image, *(layer.generator for layer in layers))
    same.expect(graphs=1)
