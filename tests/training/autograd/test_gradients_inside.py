"""`backward()` in captured code: the graph goes on behind it. Each test compares with eager over several calls:
results, exceptions, parameters, their gradients, the state of optimizers."""

from __future__ import annotations

import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from tests.training.autograd.steps import batch, both, loss_of, perceptron, with_optimizer

from twins import leaf


@pytest.mark.parametrize(
    "kind, options",
    [
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
        (torch.optim.AdamW, {"lr": 1e-2}),
        (torch.optim.Adam, {"lr": 1e-2, "foreach": True, "amsgrad": True}),
        (torch.optim.RMSprop, {"lr": 1e-2}),
    ],
    ids=lambda each: each.__name__ if isinstance(each, type) else "",
)
def test_a_whole_step_is_one_graph(kind, options):
    def step(module, optimizer, x, y):
        optimizer.zero_grad()
        loss = loss_of(module, x, y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        return loss, norm

    both(with_optimizer(kind, **options), step, batch)


def test_gradients_are_added_to_those_that_are_there():
    def step(module, x, y):
        loss_of(module, x, y).backward()
        return [parameter.grad.norm() for parameter in module.parameters()]

    both(lambda: (perceptron(),), step, batch)


def test_a_gradient_that_is_set_to_zero_stays_the_same_tensor():
    def step(module, optimizer, x, y):
        optimizer.zero_grad(set_to_none=False)
        before = module[0].weight.grad
        loss_of(module, x, y).backward()
        optimizer.step()
        return before is None or module[0].weight.grad is before

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch)


@pytest.mark.parametrize("foreach", [False, True])
def test_gradients_are_set_to_zero_behind_the_step(foreach):
    def step(module, optimizer, x, y):
        loss = loss_of(module, x, y)
        loss.backward()
        optimizer.step()
        before = module[0].weight.grad
        optimizer.zero_grad(set_to_none=False)
        after = module[0].weight.grad
        return loss.detach(), after is before, after.grad_fn is None, after.requires_grad

    both(with_optimizer(torch.optim.Adam, lr=0.1, foreach=foreach), step, batch)


def test_the_history_of_what_was_written():
    def step(module, x, y):
        with torch.no_grad():
            module[0].weight.mul_(0.5)
        scale = torch.ones(3, dtype=torch.float64)
        scale.mul_(2)
        seen = [scale.grad_fn is None, x.add_(1).grad_fn is None]
        scale.mul_(module[2].bias[:1].sum())
        loss = loss_of(module, x, y) + scale.sum()
        loss.backward()
        return loss, seen, scale.requires_grad

    both(lambda: (perceptron(),), step, batch)


def test_small_batches_are_added_up():
    def step(module, optimizer, x, y):
        optimizer.zero_grad()
        total = 0
        for part, classes in zip(x.chunk(2), y.chunk(2)):
            loss = loss_of(module, part, classes) / 2
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        return total

    both(with_optimizer(torch.optim.AdamW, lr=1e-2), step, lambda: batch(8))


def test_several_steps():
    def step(module, optimizer, x, y):
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            losses.append(loss_of(module, x, y))
            losses[-1].backward()
            optimizer.step()
        return losses

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch)


def test_two_models_that_learn_from_each_other():
    def make():
        one, other = nn.Linear(4, 6).double(), perceptron()
        return one, other, *(torch.optim.Adam(each.parameters(), lr=1e-3) for each in (one, other))

    def step(maker, judge, of_maker, of_judge, noise, x):
        made = maker(noise)
        judged = (F.softplus(judge(made.detach())) + F.softplus(-judge(x))).mean()
        of_judge.zero_grad()
        judged.backward()
        of_judge.step()
        loss = F.softplus(-judge(made)).mean()
        of_maker.zero_grad()
        loss.backward()
        of_maker.step()
        return judged, loss

    both(make, step, lambda: (torch.randn(5, 4, dtype=torch.float64), batch()[0]))


def test_statistics_of_a_norm_and_dropout():
    def make():
        module = nn.Sequential(nn.Linear(6, 6, bias=False), nn.BatchNorm1d(6), nn.Dropout(0.3)).double()
        return module, torch.optim.SGD(module.parameters(), lr=0.1)

    def step(module, optimizer, x, y):
        optimizer.zero_grad()
        loss = module(x).pow(3).mean()
        loss.backward()
        optimizer.step()
        return loss

    both(make, step, batch)


def test_gradients_lie_as_their_parameters_do():
    def make():
        module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 1, bias=False)).double()
        module = module.to(memory_format=torch.channels_last)
        module.turned = nn.Parameter(torch.randn(4, 3, dtype=torch.float64).t())
        module[0].bias.requires_grad_(False)
        return (module,)

    def step(module, x):
        module.zero_grad()
        (module[:3](x).square().mean() + (x[0, :, :2, 0].t() @ module.turned).sum()).backward()
        return [None if each.grad is None else each.grad.stride() for each in module.parameters()]

    def draw():
        return (torch.randn(2, 3, 8, 8, dtype=torch.float64).to(memory_format=torch.channels_last),)

    both(make, step, draw)


def test_an_expanded_gradient_and_one_that_is_a_view():
    def step(w, given):
        w.grad = None
        w.sum().backward()
        first, w.grad = w.grad, None
        w.view(-1).backward(given)
        w.grad.mul_(2)
        return first.stride(), first, given

    both(lambda: (leaf(3, 4),), step, lambda: (torch.randn(12, dtype=torch.float64),))


def test_gradients_that_are_detached_in_place():
    """Leaves keep no views, though the gradient may lie in the memory of what was given."""

    def step(module, w, x, given):
        for each in (w, *module.parameters()):
            if each.grad is not None:
                each.grad.detach_().zero_()
                each.grad = None
        module(x).sum().backward()
        w.flatten().backward(given)
        is_view = [each.grad._is_view() for each in (w, *module.parameters())]
        w.grad.mul_(2)
        return is_view, w.grad, given

    def draw():
        return torch.randn(4, 5, dtype=torch.float64), torch.randn(6, dtype=torch.float64)

    both(lambda: (nn.Linear(5, 3).double(), leaf(2, 3)), step, draw, breaks=True)


@pytest.mark.parametrize("sizes, strides", [((0, 4), (8, 2)), ((3, 0), (7, 2)), ((1, 4), (77, 1)), ((0,), (2,))])
def test_gradients_of_leaves_whose_strides_place_nothing(sizes, strides):
    def step(w):
        found = []
        for given in (torch.ones(sizes, dtype=torch.float64), torch.ones((), dtype=torch.float64).expand(sizes)):
            for use in (lambda: w, lambda: w * 2):
                w.grad = None
                use().backward(given)
                found.append((w.grad.stride(), w.grad._version, w.grad))
        return found

    def make():
        return (torch.empty_strided(sizes, strides, dtype=torch.float64).fill_(2).requires_grad_(),)

    both(make, step, tuple, breaks=True)


def test_how_often_gradients_were_written():
    def step(w, row, x):
        w.grad = row.grad = None
        w.t().backward(x)
        row.backward(x[:1, :1].expand(3, 2)[:1, 0])
        return w.grad._version, row.grad._version, row.grad.stride(), w.grad, row.grad, x

    both(lambda: (leaf(2, 3), leaf(1)), step, lambda: (torch.randn(3, 2, dtype=torch.float64),), breaks=True)


def test_the_same_gradient_for_two_leaves():
    def step(v, w, x):
        v.grad = w.grad = None
        (v + w).backward(x * 2)
        v.grad.mul_(2)
        return v.grad, w.grad

    both(lambda: (leaf(4), leaf(4)), step, lambda: (torch.randn(4, dtype=torch.float64),))


def test_some_leaves_only():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        loss.backward(inputs=[module[0].weight, module[3].bias], retain_graph=True)
        torch.autograd.backward([loss, loss * 2], inputs=module[1].bias)

    both(lambda: (perceptron(),), step, batch)


def test_parameters_that_want_no_gradients_at_times():
    def before(number, module):
        module[0].weight.requires_grad_(number % 2 == 0)

    def step(module, x, y):
        loss_of(module, x, y).backward()

    both(lambda: (perceptron(),), step, batch, before=before)


def test_autocast():
    def step(module, optimizer, x, y):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(module, x, y)
        loss.backward()
        optimizer.step()
        return loss.dtype

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch)


def test_a_backward_under_autocast():
    def step(module, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(module, x, y)
            loss.backward()
            again = module(x)
        return again

    both(lambda: (perceptron(),), step, batch)


def test_a_checkpoint():
    def step(module, x, y):
        hidden = checkpoint(module[0], x, use_reentrant=False)
        F.cross_entropy(module[3](module[2](module[1](hidden))), y).backward()

    both(lambda: (perceptron(),), step, batch)


@pytest.mark.parametrize("read", [lambda loss: round(loss, 6), lambda loss: f"{loss:.3f}"], ids=["number", "text"])
def test_numbers_that_are_read_behind_a_backward(read):
    def step(module, optimizer, x, y):
        loss = loss_of(module, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return read(loss.item())

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch)


OLD: list[weakref.ref[torch.Tensor]] = []
SEEN: list[list[bool]] = []


@framejit.allow_in_graph
def probed(x):
    SEEN.append([gradient() is None for gradient in OLD])
    return x * 1


def test_old_gradients_do_not_live_beside_new_ones():
    def step(module, optimizer, x, y):
        optimizer.zero_grad()
        loss_of(module, probed(x), y).backward()
        optimizer.step()

    module = perceptron()
    compiled = framejit.optimize(step, backend="eager", fullgraph=True)
    optimizer, given = torch.optim.SGD(module.parameters(), lr=0.1), batch()
    for _ in range(3):
        compiled(module, optimizer, *given)
    OLD[:] = [weakref.ref(parameter.grad) for parameter in module.parameters()]
    SEEN.clear()
    compiled(module, optimizer, *given)
    assert SEEN == [[True] * len(OLD)]
    OLD.clear()


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("handled", [False, True])
def test_gradients_that_are_let_go_of_behind_an_operation_that_raises(early, handled):
    """A class that is out of range is met before or behind `zero_grad()`: old gradients are there still, or no more."""

    def step(module, optimizer, x, y):
        try:
            if early:
                optimizer.zero_grad()
            loss = loss_of(module, x, y)
            if not early:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        except IndexError as e:
            if not handled:
                raise
            return str(e)
        return loss

    def draw():
        x, y = batch()
        drawn.append(None)
        return x, y + 7 * (len(drawn) // 2 % 6 == 2)  # once: each side draws six times

    drawn: list[None] = [None]
    both(with_optimizer(torch.optim.Adam, lr=0.1), step, draw, calls=6)


def test_old_gradients_that_are_still_read():
    def step(module, optimizer, x, y):
        before = [each.grad for each in module.parameters()]
        optimizer.zero_grad()
        loss_of(module, x, y).backward()
        optimizer.step()
        return before, module[0].weight.grad, None if before[0] is None else before[0] + module[0].weight.grad

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch)
