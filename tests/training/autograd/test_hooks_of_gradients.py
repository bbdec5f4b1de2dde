"""`register_hook()` and `retain_grad()` of what a step computes: the step stays one graph, with eager's numbers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.training.autograd.steps import batch, both, momentum, updated

from support import of_kind, recorded, seed
from twins import leaf, same


def seen(net, optimizer, x, y):
    found = []
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: found.append(gradient.norm()))
    return updated(optimizer, F.cross_entropy(net.head(hidden), y)), found


def replaced(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 0.5)
    hidden.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def written(net, optimizer, x, y):
    hidden = net.first(x)

    def hook(gradient):
        gradient.mul_(3)

    hidden.register_hook(hook)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def taken_off(net, optimizer, x, y):
    hidden = net.first(x)
    first = hidden.register_hook(lambda gradient: gradient * 2)
    hidden.register_hook(lambda gradient: gradient + 1)
    first.remove()
    with hidden.register_hook(lambda gradient: gradient * 5):
        loss = F.cross_entropy(net.head(hidden), y)
    return updated(optimizer, loss)


def one_behind_the_other(net, optimizer, x, y):
    found, hidden = [], x
    for number, part in enumerate((net.first, torch.tanh, net.norm, net.last)):
        hidden = part(hidden)
        hidden.register_hook(lambda gradient, number=number: found.append((number, gradient.sum())))
    loss = F.cross_entropy(hidden, y)
    loss.register_hook(lambda gradient: found.append(("loss", gradient)) or gradient * 2)
    return updated(optimizer, loss), found


def beside_each_other(net, optimizer, x, y):
    found = []
    first = net.first(x)
    second = net.first(x.flip(0))
    second.register_hook(lambda gradient: found.append(("second", gradient.sum())))
    first.register_hook(lambda gradient: found.append(("first", gradient.sum())))
    return updated(optimizer, F.cross_entropy(net.head(first) * net.head(second), y)), found


def around_it(net, optimizer, x, y):
    before = net.first(x)
    hidden = torch.tanh(before)
    hidden.register_hook(lambda gradient: gradient + 1)
    return updated(optimizer, F.cross_entropy(net.head(hidden + before * 2), y))


def of_a_view(net, optimizer, x, y):
    parts = net.first(x).view(-1, 2, 4).transpose(0, 1)
    parts.register_hook(lambda gradient: gradient * 2)
    return updated(optimizer, F.cross_entropy(net.head(parts.transpose(0, 1).flatten(1)), y))


def modes(net, optimizer, x, y):
    found = []
    hidden = net.first(x)
    last, first = net.last.bias, net.first.bias
    hidden.register_hook(
        lambda gradient: found.append((torch.is_grad_enabled(), last.grad is None, first.grad is None))
    )
    return updated(optimizer, F.cross_entropy(net.head(hidden), y)), found


def data_decides(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient if gradient.norm() < 0.1 else gradient / gradient.norm())
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def kept(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    loss = F.cross_entropy(net.head(hidden), y)
    loss.retain_grad()
    before = hidden.grad
    updated(optimizer, loss)
    return before, hidden.grad, hidden.grad.norm(), loss.grad, hidden.is_leaf, hidden.requires_grad, loss


def kept_and_replaced(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    hidden.register_hook(lambda gradient: gradient * 3)
    updated(optimizer, F.cross_entropy(net.head(hidden), y))
    return hidden.grad


def kept_twice(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    loss = F.cross_entropy(net.head(hidden), y)
    loss.backward(retain_graph=True)
    first = hidden.grad.clone()
    return updated(optimizer, loss * 2), first, hidden.grad


def class_activations(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    out = net.head(hidden)
    out[torch.arange(len(y)), out.argmax(1)].sum().backward()
    optimizer.zero_grad()
    return F.relu((hidden.grad.mean(0) * hidden).sum(1)).detach()


def given_out(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.retain_grad()
    updated(optimizer, F.cross_entropy(net.head(hidden), y))
    return hidden, hidden.grad


def hooked(net, optimizer, x, y):
    found = []
    hidden = net.first(x)
    handle = hidden.register_hook(lambda gradient: found.append(gradient) or gradient * 2)
    return hidden, handle, found


def compared(net, optimizer, x, y):
    hidden = net.first(x)
    before = {hidden: 1}
    hidden.register_hook(lambda gradient: gradient * 2)
    updated(optimizer, F.cross_entropy(net.head(hidden), y))
    return before[hidden], {**before, hidden: 2}, hidden in {hidden}


WHOLE = [
    seen, replaced, written, taken_off, one_behind_the_other, beside_each_other, around_it, of_a_view, modes,
    data_decides, kept, kept_and_replaced, kept_twice, class_activations,
]


@pytest.mark.parametrize("step", WHOLE)
def test_steps_are_one_graph(step):
    both(momentum, step, batch, calls=6)


@pytest.mark.parametrize("step", [seen, around_it, kept, class_activations])
def test_batches_of_other_sizes(step):
    for backend in ("eager", "fuse"):
        framejit.reset()
        sides = []
        with recorded() as log:
            for fn in (step, framejit.optimize(step, backend=backend)):
                seed()
                made = momentum()
                sides.append([fn(*made, *batch(rows)) for rows in (5, 4, 6, 2, 7)] + [*made[0].parameters()])
        same(*sides)
        assert len(of_kind(log, "capture_started")) <= 3 and not of_kind(log, "graph_break")


def overwritten(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient + 1)
    hidden.mul_(2)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def view_of_what_is_overwritten(net, optimizer, x, y):
    hidden = net.first(x)
    view = hidden.view(-1, 2, 4)
    view.register_hook(lambda gradient: gradient + 1)
    hidden.mul_(2)
    return updated(optimizer, F.cross_entropy(net.head(view.flatten(1)), y))


def no_backward(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient * 2)
    hidden.retain_grad()
    return F.cross_entropy(net.head(hidden), y)


def raises(net, optimizer, x, y):
    def hook(gradient):
        raise ValueError("a gradient")

    hidden = net.first(x)
    hidden.register_hook(hook)
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


def of_another_shape(net, optimizer, x, y):
    hidden = net.first(x)
    hidden.register_hook(lambda gradient: gradient[0])
    return updated(optimizer, F.cross_entropy(net.head(hidden), y))


class FirstHasNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, first, second):
        return first * second

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


def called_with_none(w, v):
    found, hidden = [], w * 2
    hidden.register_hook(lambda gradient: found.append(gradient is None))
    FirstHasNone.apply(hidden, v).sum().backward()
    return found


def test_hooks_that_no_gradient_comes_to():
    compiled = framejit.optimize(called_with_none, backend="eager")
    for _ in range(3):
        assert compiled(leaf(3), leaf(3)) == called_with_none(leaf(3), leaf(3)) == [True]


APART = [overwritten, view_of_what_is_overwritten, no_backward, raises, of_another_shape]


@pytest.mark.parametrize("step", APART)
def test_steps_in_parts(step):
    both(momentum, step, batch, breaks=True)


def test_backward_comes_later():
    for fn in (no_backward, framejit.optimize(no_backward, backend="fuse")):
        seed()
        net, optimizer = momentum()
        fn(net, optimizer, *batch()).backward()
        grads = [parameter.grad for parameter in net.parameters()]
        if fn is no_backward:
            expected = grads
    torch.testing.assert_close(grads, expected)


def test_tensors_that_keep_their_gradient_leave():
    given = []
    for fn in (given_out, framejit.optimize(given_out, backend="fuse")):
        seed()
        made = momentum()
        for number in range(4):
            seed(number)
            hidden, gradient = fn(*made, *batch())
            assert hidden.retains_grad and not hidden.is_leaf and hidden.grad is gradient
            given.append((hidden.detach(), gradient))
    torch.testing.assert_close(given[:4], given[4:])


def test_tensors_leave_with_their_hooks():
    for backend in ("eager", "fuse"):
        compiled = framejit.optimize(hooked, backend=backend)
        net, optimizer = momentum()
        with recorded() as log:
            for _ in range(4):
                optimizer.zero_grad()
                x, y = batch()
                hidden, handle, found = compiled(net, optimizer, x, y)
                hidden.sum().backward()
                assert len(found) == 1
                torch.testing.assert_close(net.first.weight.grad, (2 * x.sum(0)).expand(8, 6))
                handle.remove()
                assert not hidden._backward_hooks
        assert not of_kind(log, "graph_break")


def test_tensors_with_hooks_stay_the_same_keys():
    sides = []
    for fn in (compared, framejit.optimize(compared, backend="fuse")):
        seed()
        first, merged, is_in = fn(*momentum(), *batch())
        sides.append((first, list(merged.values()), is_in))
    assert sides[0] == sides[1]


@pytest.mark.parametrize("step", [seen, taken_off, one_behind_the_other, kept])
def test_numbers_of_handles_are_not_looked_at(step):
    compiled = framejit.optimize(step, backend="eager")
    made = momentum()
    with recorded() as log:
        for _ in range(6):
            compiled(*made, *batch())
    assert len(of_kind(log, "capture_started")) <= 2
