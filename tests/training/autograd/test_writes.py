"""Writes into inputs, results and what is made inside of graphs that are fused: autograd notices those that eager's
notices, and gradients are eager's."""

import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.training.autograd.functions import gradients

from twins import Twins, leaf, same


def test_results_that_are_changed_in_place():
    def use(fn, x):
        x.grad = None
        out = fn(x)
        out.mul_(3).add_(1)
        out.sum().backward()
        return out, x.grad

    Twins(lambda x: x * 2 + 1, leaf(4)).both(use)


def test_results_that_the_backward_needs_are_changed_in_place():
    def use(fn, x):
        out = fn(x)
        out.mul_(3)
        out.sum().backward()

    twins = Twins(lambda x: x.exp(), leaf(4))
    for fn, given in zip((twins.fn, twins.compiled), twins.inputs):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                use(fn, *given)
    twins.check_fused()


def test_inputs_may_change_that_eager_does_not_keep():
    """A sum keeps nothing: whoever writes into its operands before the backward may do so."""

    def fn(x, w):
        return (x + w).relu()

    def use(fn, x, w):
        w.grad = None
        out = fn(x, w)
        x.add_(1)
        with torch.no_grad():
            w.mul_(0.5)
        out.sum().backward()
        return out, w.grad

    Twins(fn, torch.randn(5, dtype=torch.float64), leaf(5)).both(use)


def test_inputs_that_the_backward_needs_change():
    def use(fn, x, w):
        out = fn(x, w)
        with torch.no_grad():
            w.mul_(0.5)
        out.sum().backward()

    twins = Twins(lambda x, w: x @ w, leaf(3, 3), leaf(3, 3))
    for fn, given in zip((twins.fn, twins.compiled), twins.inputs):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                use(fn, *given)


def eager_keeps_what_is_computed_again(x):
    """The last result is what eager looks at in its backward; fused, that comes of others."""
    return (x * 3).sigmoid().abs().sqrt()


def several_results(x):
    h = x * 3
    return h, h.sin().exp(), h.detach()


def results_that_keep_different_tensors(x):
    return x.exp(), x.sin(), (x.exp().tanh() * 2).sum()


def norms(x):
    h = x * 3
    return h, F.layer_norm(h, (4,)) * 2, h.softmax(-1), h.var()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "fn", [eager_keeps_what_is_computed_again, several_results, results_that_keep_different_tensors, norms]
)
def test_what_is_written_behind_the_graph_is_noticed_where_eager_keeps_it(fn, dynamic):
    compiled = framejit.optimize(fn, fullgraph=True, dynamic=dynamic)

    def outcome(fn, written, used):
        x = torch.linspace(0.1, 2, 8).reshape(2, 4).requires_grad_()
        outs = fn(x)
        outs = outs if isinstance(outs, tuple) else (outs,)
        with torch.no_grad():
            (x, *outs)[written].add_(1)
        try:
            outs[used].sum().backward()
        except RuntimeError as e:
            return "modified by an inplace operation" in str(e)
        return x.grad

    outs = fn(torch.ones(2, 4).requires_grad_())
    count = len(outs) if isinstance(outs, tuple) else 1
    for _ in range(2):
        for written in range(count + 1):
            for used in range(count):
                if fn is several_results and used == 2:
                    continue  # no gradients
                same(outcome(fn, written, used), outcome(compiled, written, used))


def test_writes_into_what_is_made_inside():
    def fn(x):
        h = x * 2
        h[:, 0] = x[:, 1]
        h[1].mul_(3)
        h += 1
        view = h.t()
        return view.sin()

    Twins(fn, leaf(3, 4)).both(gradients)


def test_inputs_that_share_memory_with_one_that_is_written():
    def fn(weight, x, y):
        z = F.linear(y, weight)
        x.sub_(1)
        return z + y.sum(), x

    def used(fn, alike):
        weight, x = torch.ones(4, 4, requires_grad=True), torch.arange(12.0).reshape(3, 4)
        z, x = fn(weight, x, x[:] if alike else torch.ones(3, 4))
        try:
            z.sum().backward()
        except RuntimeError as e:
            return z.tolist(), x.tolist(), str(e)[:60]
        return z.tolist(), x.tolist(), weight.grad.tolist()

    compiled = framejit.optimize(fn, backend="fuse")
    for alike in (False, False, True, False, True):
        assert used(compiled, alike) == used(fn, alike)


@pytest.mark.parametrize("write", [
    lambda x: x[1:].fill_(3),
    lambda x: x[1].mul_(2),
    lambda x: x.unbind()[2].add_(1),
    lambda x: x.as_strided((2,), (1,), x.storage_offset() + 1).zero_(),
    lambda x: torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), x.storage_offset() + 1),
])
def test_inputs_that_begin_behind_the_beginning_of_their_memory(write):
    def fn(w, x):
        part = write(x)
        return (w * x.sum() + part.sum()).exp(), x.chunk(2)[1] * 2

    compiled = framejit.optimize(fn, backend="fuse")
    for number in (1, 3, 0, 2):
        found = []
        for call in (fn, compiled):
            w, memory = torch.full((3,), 0.1, requires_grad=True), torch.arange(24.0).div(24).view(6, 4)
            out, part = call(w, memory[number])
            found.append((out, part, memory, *torch.autograd.grad(out.sum(), w)))
        same(*found)
