"""Kernels where memory is shared, given out twice, or written."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import framejit
from tests.fuse.lowering.plan_checks import check, planned


def test_views_of_inputs_are_returned_as_views():
    check(lambda x: (x[1:], x.t(), x.view(-1), x.detach(), x[0, 0], x.unsqueeze(0), x * 2, x), torch.randn(4, 5))


def test_one_result_twice():
    check(lambda x: (lambda y: (y, y, y[1:], y.view(-1)))(x * 2), torch.randn(4, 5))


def test_inputs_that_are_one_tensor():
    x = torch.randn(5)
    check(lambda x, y: (x + y, x * 2, y), x, x)

    def writes(x, y):
        x.add_(1)
        return x + y

    check(writes, x, x)


def test_inputs_that_share_memory():
    base = torch.randn(10)
    for first, second in ((base, base[:]), (base[:6], base[4:]), (base[::2], base[1::2]), (base.view(2, 5), base)):

        def writes(x, y):
            x.mul_(2)
            z = y + 1
            y.sub_(3)
            return z, x.sum(), y * 2

        mine, theirs = base.clone(), base.clone()
        views = [
            [memory.as_strided(view.shape, view.stride(), view.storage_offset()) for view in (first, second)]
            for memory in (mine, theirs)
        ]
        got, expected = planned(writes)[0](*views[0]), writes(*views[1])
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(mine, theirs)


def test_inputs_that_come_to_share_memory_after_compiling():
    def writes(x, y):
        x.mul_(2)
        return x + y

    compiled, _ = planned(writes)
    compiled(torch.randn(6), torch.randn(6))
    x, other = torch.randn(6), torch.randn(8)
    torch.testing.assert_close(compiled(x, x), 4 * x / 2)
    mine, theirs = other.clone(), other.clone()
    torch.testing.assert_close(compiled(mine[:6], mine[2:]), writes(theirs[:6], theirs[2:]))
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1), lambda x: x[1:].mul_(2), lambda x: x.t().copy_(x.t() + 1), lambda x: x[::2].zero_(),
        lambda x: x.flatten()[3:7].fill_(5),
        lambda x: x[0].add_(x[1]), lambda x: x[1:].copy_(x[:-1].clone()), lambda x: x.relu_().add_(x),
        lambda x: x.index_fill_(0, torch.tensor([1]), 2.0),
        lambda x: x.diagonal().add_(1), lambda x: x.masked_fill_(x > 0, 0.0),
        lambda x: x.__setitem__((0, slice(1, 3)), 7.0), lambda x: x.clamp_(0, 1),
    ],
)
def test_writes_into_an_input(write):
    def program(x):
        before = x * 2
        write(x)
        after = x + 1
        write(x)
        return before, after, x

    check(program, torch.randn(4, 5))
    check(program, torch.randn(5, 4).t())
    check(program, torch.randn(6, 7)[1:5, 1:6])


def test_writes_into_temporaries():
    def program(x):
        y = x * 1
        view = y[1:]
        y.add_(1)
        view.mul_(2)
        z = torch.zeros_like(y)
        z[0] = y.sum(0)
        z[1:] += view
        return y, z, view

    check(program, torch.randn(4, 5))


def test_a_buffer_of_a_module_is_written():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count += 1
            return x * self.count

    mine, theirs = Counter(), Counter()
    compiled = framejit.optimize(mine)
    x = torch.randn(4)
    for _ in range(5):
        torch.testing.assert_close(compiled(x), theirs(x))
    assert mine.count == theirs.count == 5
