"""`backward()` and `torch.autograd.grad` in captured code: the graph goes on behind them. Each test compares with eager
over several calls: results, exceptions, parameters, their gradients, the state of optimizers."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit

from support import seed
from twins import leaf, same

BACKENDS = ("eager", "fuse")


def contents(made: Any) -> Any:
    """What can be seen of what a step works with."""
    if isinstance(made, nn.Module):
        return {
            name: (value, value.grad if value.is_leaf else None)
            for name, value in (*made.named_parameters(), *made.named_buffers())
        }
    if isinstance(made, torch.optim.Optimizer):
        return made.state_dict()
    if isinstance(made, torch.Tensor):
        return made.detach(), made.grad if made.is_leaf else None
    return None


def both(
    make: Callable[[], tuple[Any, ...]], step: Callable[..., Any], draw: Callable[[], tuple[Any, ...]] = tuple, *,
    calls: int = 4, breaks: bool = False, before: Callable[..., None] = lambda number, *made: None,
) -> None:
    """`step(*make(), *draw())`, called several times, is as in eager by each backend, without a warning of framejit's,
    and one graph unless `breaks`."""
    for backend in BACKENDS:
        framejit.reset()
        warnings.simplefilter("error", framejit.FramejitWarning)
        sides = []
        for fn in (step, framejit.optimize(step, backend=backend)):
            seed()
            sides.append((fn, make()))
        for number in range(calls):
            outcomes = []
            for fn, made in sides:
                before(number, *made)
                seed(number)
                given = draw()
                try:
                    outcome: Any = fn(*made, *given)
                except Exception as e:
                    outcome = type(e).__name__, str(e).splitlines()[0]
                outcomes.append((outcome, [contents(each) for each in (*made, *given)], torch.rand(())))
            same(*outcomes)
        report = next(each for each in framejit.status().functions if each.function.endswith(step.__name__))
        assert bool(report.breaks) == breaks, [each.reason for each in report.breaks.values()]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 10), nn.LayerNorm(10), nn.GELU(), nn.Linear(10, 3)).double()


def batch(rows: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 6, dtype=torch.float64), torch.randint(0, 3, (rows,))


def with_optimizer(kind: type[torch.optim.Optimizer], **options: Any) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        module = perceptron()
        return module, kind(module.parameters(), **options)

    return make


def stepped(module, optimizer, x, y):
    optimizer.zero_grad()
    loss = loss_of(module, x, y)
    loss.backward()
    optimizer.step()
    return loss


def loss_of(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(module(x), y)


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


def test_the_same_gradient_for_two_leaves():
    def step(v, w, x):
        v.grad = w.grad = None
        (v + w).backward(x * 2)
        v.grad.mul_(2)
        return v.grad, w.grad

    both(lambda: (leaf(4), leaf(4)), step, lambda: (torch.randn(4, dtype=torch.float64),), breaks=True)


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


@pytest.mark.parametrize(("read", "breaks"), [(lambda loss: round(loss, 6), False), (lambda loss: f"{loss:.3f}", True)])
def test_numbers_that_are_read_behind_a_backward(read, breaks):
    def step(module, optimizer, x, y):
        loss = loss_of(module, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return read(loss.item())

    both(with_optimizer(torch.optim.SGD, lr=0.1), step, batch, breaks=breaks)


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


# ---- torch.autograd.grad -------------------------------------------------------------------------


def test_gradients_of_parameters():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        return loss, torch.autograd.grad(loss, module.parameters())

    both(lambda: (perceptron(),), step, batch)


def test_gradients_of_what_is_in_between():
    def step(module, x, y):
        hidden = module[0](x)
        loss = F.cross_entropy(module[3](module[2](module[1](hidden))), y)
        (gradient,) = torch.autograd.grad(loss, hidden, retain_graph=True)
        loss.backward()
        return gradient, hidden.requires_grad, gradient.requires_grad

    both(lambda: (perceptron(),), step, batch)


@pytest.mark.parametrize("options", [{"allow_unused": True}, {"materialize_grads": True}, {}], ids=str)
def test_leaves_that_are_not_used(options):
    def step(v, w, x):
        return torch.autograd.grad((v * x).sum(), [v, w], **options)

    both(lambda: (leaf(3), leaf(3)), step, lambda: (leaf(3).detach(),), breaks=not options)


def test_leaves_that_captured_code_makes():
    def step(module, x):
        x = x.detach().requires_grad_()
        score = torch.logsumexp(module(x), -1).sum()
        (gradient,) = torch.autograd.grad(score, x)
        again = (x + gradient).detach().clone()
        again.requires_grad = True
        module(again).sum().backward()
        return gradient, again.grad, again.is_leaf, x

    both(lambda: (perceptron(),), step, lambda: batch()[:1])


def test_what_a_leaf_is_made_of_wants_no_gradients():
    def step(x):
        inner = x.detach().requires_grad_()
        view = x[1:]
        (gradient,) = torch.autograd.grad((inner * inner).sum(), inner)
        return gradient, inner, x.requires_grad, view.requires_grad

    both(tuple, step, lambda: (leaf(4).detach(),))


def test_equations_of_derivatives():
    def make():
        module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).double()
        return module, torch.optim.Adam(module.parameters(), lr=1e-3)

    def step(module, optimizer, x):
        optimizer.zero_grad()
        x = x.clone().requires_grad_()
        u = module(x)
        (du,) = torch.autograd.grad(u, x, torch.ones_like(u), create_graph=True)
        (second,) = torch.autograd.grad(du[:, 0].sum(), x, create_graph=True)
        loss = (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * second[:, 0]).square().mean()
        loss.backward()
        optimizer.step()
        return loss, du

    both(make, step, lambda: (torch.randn(8, 2, dtype=torch.float64),))


def test_gradients_of_gradients_are_fused():
    def step(module, x):
        (gradient,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        return ((gradient.norm(2, dim=1) - 1) ** 2).mean()

    module, x = perceptron(), leaf(5, 6)
    compiled = framejit.optimize(step, backend="fuse", fullgraph=True)
    compiled(module, x).backward()
    reports = framejit.inspect(compiled).graphs
    assert reports and not any(report.reason for report in reports), reports


def test_learning_to_learn():
    def step(module, x, y):
        parameters = dict(module.named_parameters())
        loss = F.cross_entropy(torch.func.functional_call(module, parameters, (x,)), y)
        gradients = torch.autograd.grad(loss, [*parameters.values()], create_graph=True)
        moved = {name: p - 0.1 * g for (name, p), g in zip(parameters.items(), gradients)}
        loss = F.cross_entropy(torch.func.functional_call(module, moved, (x,)), y)
        loss.backward()
        return loss

    both(lambda: (perceptron(),), step, batch)


# ---- what is left to Python ----------------------------------------------------------------------


def test_a_second_backward():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        loss.backward()
        loss.backward()

    both(lambda: (perceptron(),), step, batch, breaks=True)


def test_a_backward_of_what_was_returned():
    def step(module, x, y):
        loss = loss_of(module, x, y)
        loss.backward()
        return loss

    module = perceptron()
    for backend in BACKENDS:
        loss = framejit.optimize(step, backend=backend)(module, *batch())
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_what_was_written_before_the_backward():
    def step(w, x):
        made = (w * x).exp()
        loss = made.sum()
        made.mul_(2)
        loss.backward()

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


@pytest.mark.parametrize("make_loss", [lambda w, x: (x * 2).sum(), lambda w, x: w * x], ids=["constant", "many"])
def test_losses_without_gradients(make_loss):
    def step(w, x):
        make_loss(w, x).backward()

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


def test_hooks_of_the_program():
    def hooked(number, module, seen):
        if number == 1:
            module[0].weight.register_hook(lambda gradient: gradient * 2)
        if number == 2:
            module[0].bias.register_post_accumulate_grad_hook(lambda w: seen.append(round(w.grad.norm().item(), 9)))

    def step(module, seen, x, y):
        loss_of(module, x, y).backward()
        return list(seen)

    both(lambda: (perceptron(), []), step, batch, before=hooked, breaks=True)


def test_hooks_on_nodes_of_autograd():
    def make():
        module = perceptron()
        node = torch.autograd.graph.get_gradient_edge(module[0].weight).node
        node.register_hook(lambda *gradients: seen.append(1))
        kept.append(node)
        return (module,)

    def step(module, x, y):
        loss_of(module, x, y).backward()
        return len(seen)

    seen, kept = [], []
    module, *given = *make(), *batch()
    for backend in BACKENDS:
        seen.clear()
        framejit.optimize(step, backend=backend)(module, *given)
        assert seen == [1]


def test_a_hook_that_is_removed_behind_the_backward():
    def step(w, x):
        handle = w.register_hook(lambda gradient: gradient * 2)
        (w * x).sum().backward()
        handle.remove()
        return w.grad, len(w._backward_hooks)

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), breaks=True)


def test_numbers_of_hooks_are_the_programs_own():
    def step(w, other, x):
        (w * x).sum().backward()
        first = other.register_forward_hook(lambda *given: None)
        (w * x * 2).sum().backward()
        second = other.register_forward_hook(lambda *given: None)
        first.remove()
        second.remove()
        return second.id - first.id, len(other._forward_hooks)

    both(lambda: (leaf(3), nn.Linear(2, 2)), step, lambda: (leaf(3).detach(),), breaks=True)


def test_what_was_computed_before_the_call():
    def step(w, hidden, x):
        (hidden * w * x).sum().backward()
        return w.grad

    def draw():
        return (leaf(3) * 2).requires_grad_(), torch.randn(3, dtype=torch.float64)

    both(lambda: (leaf(3),), step, draw, breaks=True)


def test_an_exception_behind_a_backward():
    def step(module, x, y):
        loss_of(module, x, y).backward()
        raise ValueError(f"after {len([p for p in module.parameters() if p.grad is not None])} gradients")

    both(lambda: (perceptron(),), step, batch)


def test_a_class_out_of_range_is_met_before_anything_is_written():
    rows = iter(range(100))

    def draw():
        x, y = batch()
        return x, y + 7 * (next(rows) % 4 >= 2)

    both(with_optimizer(torch.optim.SGD, lr=0.1), stepped, draw, calls=2)


def test_other_backends_get_no_graphs_that_ask_for_gradients():
    def step(module, x, y):
        x = x.clone().requires_grad_()
        loss_of(module, x, y).backward()
        return x.grad

    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    module, other, given = perceptron(), perceptron(), batch()
    other.load_state_dict(module.state_dict())
    same(step(module, *given), framejit.optimize(step, backend=backend)(other, *given))
    called = {str(node.target) for gm in graphs for node in gm.graph.nodes if node.op != "placeholder"}
    assert graphs and not any("grad" in name for name in called), called
    same(contents(module), contents(other))


@pytest.mark.skipif(not hasattr(torch.Tensor, "grad_dtype"), reason="this torch has no dtypes of gradients")
def test_gradients_of_another_dtype():
    def before(number, w):
        w.grad = None
        w.grad_dtype = torch.float32 if number >= 2 else torch.float64

    def step(w, x):
        (w * x).sum().backward()
        return w.grad.dtype, torch.autograd.grad((w * x).exp().sum(), w)

    both(lambda: (leaf(3),), step, lambda: (leaf(3).detach(),), before=before, breaks=True)


def test_sparse_gradients():
    def make():
        module = nn.Embedding(10, 4, sparse=True)
        return module, torch.optim.SGD(module.parameters(), lr=0.1)

    def step(module, optimizer, places):
        optimizer.zero_grad()
        module(places).square().sum().backward()
        optimizer.step()
        return module.weight.detach().clone(), module.weight.grad.to_dense()

    module, optimizer = make()
    other, of_other = (made := copy.deepcopy((module, optimizer)))[0], made[1]
    compiled = framejit.optimize(step)
    for number in range(3):
        places = torch.arange(number, number + 3)
        same(step(module, optimizer, places), compiled(other, of_other, places))


def test_batches_of_other_sizes():
    rows = iter([rows for rows in (5, 6, 3, 9) * len(BACKENDS) for _ in range(2)])

    both(with_optimizer(torch.optim.SGD, lr=0.1), stepped, lambda: batch(next(rows)))
