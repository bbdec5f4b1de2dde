"""Small graphs are measured, forward and backward, and run as ATen's operations where these are the quicker."""

import pytest
import torch

import framejit
from framejit.backends.fuse.autograd_nodes import small_graphs

from support import of_kind, recorded
from twins import Twins, leaf


def small(x, w):
    return (x @ w).sin()


def use(fn, x, w):
    x.grad = w.grad = None
    seen = []
    handle = w.register_hook(lambda gradient: seen.append(gradient))
    out = fn(x, w)
    out.sum().backward()
    handle.remove()
    return out, x.grad, w.grad, seen


def in_turns(monkeypatch, compiled, aten):
    """Has measuring find these times."""
    measure, found = small_graphs._nanoseconds, iter([compiled, aten] * small_graphs.ROUNDS)
    monkeypatch.setattr(small_graphs, "_nanoseconds", lambda *args: (measure(*args), next(found))[1])


@pytest.mark.parametrize(
    ("compiled", "aten", "state"), [(200, 100, "eager"), (100, 200, "compiled"), (101, 100, "compiled")]
)
def test_the_quicker_one_is_kept(monkeypatch, compiled, aten, state):
    in_turns(monkeypatch, compiled * 1000, aten * 1000)
    twins = Twins(small, leaf(3, 3), leaf(3, 3))
    with recorded() as log:
        twins.both(use, calls=small_graphs.CALLS - 1)
        assert not of_kind(log, "perf")
        twins.both(use, calls=5)
    forward, backward = framejit.inspect(twins.compiled).graphs
    assert forward.state == backward.state == state
    assert (forward.compiled_us, forward.eager_us) == (compiled, aten)
    (told,) = of_kind(log, "perf")
    assert (told.compiled_us, told.eager_us, told.state) == (compiled, aten, state)


def test_measuring_changes_nothing():
    """Whatever is found: gradients, hooks, versions and the random numbers that come next are eager's."""

    def all_of(fn, x, w):
        found = use(fn, x, w)
        return found, x._version, w._version, torch.rand(2)

    Twins(small, leaf(3, 3), leaf(3, 3)).both(all_of, calls=small_graphs.CALLS + 3)


class Aside(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.count = torch.nn.Linear(3, 3).double(), torch.nn.Buffer(torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.linear(x).sin()


def loss_and_what_leads_to_it(x, w):
    h = (x @ w).sin()
    return h.sum(), h


def test_what_is_not_measured(monkeypatch):
    """What draws random numbers, counts its calls, is joined or large; nothing in a backward or the anomaly mode."""
    measured = []
    monkeypatch.setattr(small_graphs, "_nanoseconds", lambda *args: measured.append(args) or 1)
    module = Aside()
    x, w = leaf(3, 3), leaf(3, 3)
    programs = [
        lambda x, w: torch.nn.functional.dropout(x @ w, 0.5), loss_and_what_leads_to_it, lambda x, w: module(x) @ w,
    ]
    for program in programs:
        compiled = framejit.optimize(program)
        for _ in range(small_graphs.CALLS + 2):
            given = compiled(x, w)
            (given[0] if isinstance(given, tuple) else given.sum()).backward()
    compiled = framejit.optimize(small)
    for _ in range(small_graphs.CALLS + 2):
        with torch.autograd.set_detect_anomaly(True):
            compiled(x, w).sum().backward()
    compiled = framejit.optimize(small)
    for _ in range(small_graphs.CALLS + 2):
        torch.utils.checkpoint.checkpoint(lambda: compiled(x, w), use_reentrant=False).sum().backward()
    large = torch.zeros(small_graphs.MOST_BYTES // 8 + 8, 1, dtype=torch.float64, requires_grad=True)
    compiled = framejit.optimize(small)
    for _ in range(small_graphs.CALLS + 2):
        compiled(large, leaf(1, 1)).sum().backward()
    assert not measured
