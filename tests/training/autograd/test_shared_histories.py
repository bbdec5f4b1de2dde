"""Inputs over one memory: a write with gradients gives the others a history, too, whenever they are looked at."""

import pytest
import torch

import framejit


def base_is_written(x, v, w, r):
    x.mul_(r)
    return v.requires_grad, v.is_leaf, v.grad_fn is None, v


def view_is_written(x, v, w, r):
    v.mul_(r)
    return x.requires_grad, w.requires_grad, w, x


def other_view_is_written(x, v, w, r):
    v.mul_(r)
    return w.requires_grad, w.is_leaf, w.sum() + x.sum()


def a_view_made_here_is_written(x, v, w, r):
    x[1:].mul_(r)
    return v.requires_grad, v * 2, w.requires_grad, w


def nothing_is_recorded(x, v, w, r):
    with torch.no_grad():
        v.mul_(r)
    return x.requires_grad, x * r, w


def read_before(x, v, w, r):
    before = v.requires_grad, x.requires_grad
    v.mul_(r)
    return before, x.requires_grad, v.requires_grad, x


def another_memory(x, v, w, r):
    y = x.clone()
    y.mul_(r)
    return v.requires_grad, v, y


def run(fn, n):
    x = torch.arange(4.0) + n
    r = torch.full((), 2.0, requires_grad=True)
    v, w = x.select(0, 1), x[1:3]
    found = fn(x, v, w, r)
    wanted = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
    if wanted:
        sum(t.sum() for t in wanted).backward()
    facts = [(t.requires_grad, t.is_leaf, t.detach().tolist(), t._version) for t in (x, v, w)]
    return [t.detach().tolist() if isinstance(t, torch.Tensor) else t for t in found], facts, r.grad


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize(
    "fn",
    [
        base_is_written, view_is_written, other_view_is_written, a_view_made_here_is_written, nothing_is_recorded,
        read_before, another_memory,
    ],
)
def test_histories_of_what_comes_late(fn, backend):
    optimized = framejit.optimize(fn, backend=backend)
    for n in range(3):
        assert run(fn, n) == run(optimized, n)


def test_without_a_history_the_function_stays_one_graph():
    optimized = framejit.optimize(nothing_is_recorded, fullgraph=True)
    for n in range(2):
        run(optimized, n)
    assert [entry.tag.state for entry in optimized.entries] == ["compiled"]
