"""`record_function`: no graph break while no profiler runs; with one, its ranges are told of as in plain Python."""
import torch
import torch.profiler

import framejit

from support import Pair, check


def named(x):
    with torch.profiler.record_function("inner"):
        return x * 2 + 1


def broken_inside(x):
    with torch.profiler.record_function("inner"):
        y = x * 2
        print("inside")
        return y + 1


def test_a_range_without_a_profiler():
    check(named, torch.ones(3), graphs=1, breaks=0)


def test_a_range_that_a_graph_break_leaves_and_ends():
    check(broken_inside, torch.ones(3), graphs=2, breaks=1, calls=3)


def test_a_profiler_that_starts_or_ends_within_a_range():
    def fn(change, x):
        with torch.profiler.record_function("inner"):
            y = x * 2
            change()
            return y + 1

    fast = framejit.optimize(fn, backend="eager")
    for _ in range(2):
        first, second = torch.profiler.profile(), torch.profiler.profile()
        results = [fast(int, torch.ones(3)), fast(first.start, torch.ones(3))]
        first.stop()
        second.start()
        results.append(fast(second.stop, torch.ones(3)))
        assert all(torch.equal(result, torch.full((3,), 3.0)) for result in results)


def test_a_range_while_a_profiler_runs():
    fast = framejit.optimize(named, backend="eager")
    assert torch.equal(fast(torch.ones(3)), torch.full((3,), 3.0))
    with torch.profiler.profile() as profile:
        fast(torch.ones(3))
    assert "inner" in [event.name for event in profile.events()]


def test_a_step_of_training():
    def make():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step, lambda: [(p.detach().clone(), p.grad) for p in model.parameters()]

    pair = Pair(make)
    for _ in range(4):
        pair.call(torch.randn(5, 3))
    reasons = {reason for _, _, reason in pair.breaks}
    assert reasons == {"gradients, in a graph for a backend that is not framejit's own"}, pair.story()
