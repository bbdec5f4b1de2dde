"""The state of random numbers is read, set and seeded by nodes of the graph, in the program's order."""
import torch
from torch.testing._utils import freeze_rng_state

from support import check

X = torch.ones(3)


def test_seeding_between_draws():
    def fn(x):
        a = torch.rand(3)
        generator = torch.manual_seed(7)
        b = torch.rand(3)
        return a, b, generator is torch.default_generator, x + torch.randn(3)

    check(fn, X, fullgraph=True)


def test_reading_and_setting():
    def fn(x):
        state = torch.get_rng_state()
        a = torch.dropout(x, 0.5, True)
        torch.set_rng_state(state)
        b = torch.dropout(x, 0.5, True)
        return a, b, state

    check(fn, X, fullgraph=True)


def test_a_fork():
    def fn(x):
        with torch.random.fork_rng():
            torch.manual_seed(3)
            a = torch.rand(3)
        return a, x + torch.rand(3)

    check(fn, X, fullgraph=True)


def test_frozen_numbers():
    def fn(x):
        with freeze_rng_state():
            a = torch.rand(3)
        return a, x + torch.rand(3)

    check(fn, X, fullgraph=True)


def test_a_break_inside_a_fork():
    def fn(x):
        with freeze_rng_state():
            a = torch.rand(3)
            if a.sum() > 100:
                return x
            a = a + torch.rand(3)
        return a, x + torch.rand(3)

    check(fn, X, graphs=range(0, 9), breaks=range(0, 9))


def test_a_seed_that_is_none():
    def fn(x):
        try:
            torch.manual_seed("a")
        except ValueError:
            return x + 1

    check(fn, X, graphs=range(0, 9), breaks=range(0, 9))
