"""Training steps whose halves are launched as CUDA graphs, on a GPU: losses, gradients, random numbers and what hooks
see are those of the plans themselves, whatever the program does between forward and backward."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit

pytestmark = pytest.mark.gpu

STEPS = 14


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    framejit.reset()


class Block(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
        self.heads, self.dropout = nn.Linear(64, 192), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.heads(self.norm(x)).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        y = x + F.dropout(self.down(F.gelu(self.up(y))), self.dropout, self.training)
        return F.dropout(y, self.dropout, self.training)


class Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def loss_of(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x).float().pow(2).mean()


def sequences() -> torch.Tensor:
    return torch.randn(4, 32, 64, device="cuda")


def images() -> torch.Tensor:
    return torch.randn(4, 3, 20, 18, device="cuda")


class Sides:
    """A module twice: as eager runs it, or plans of the same kernels, and with launch graphs."""

    def __init__(self, module: nn.Module, run: Callable[..., Any] = loss_of, plans: bool = False) -> None:
        self.modules = [module.cuda().train(), copy.deepcopy(module).cuda().train()]
        first = framejit.optimize(run, backend="fuse") if plans else run
        self.runs = [first, framejit.optimize(run, backend="fuse", mode="reduce-overhead")]
        self.optimisers = [torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9) for each in self.modules]

    def __iter__(self) -> Iterator[tuple[Callable[..., Any], nn.Module, torch.optim.Optimizer]]:
        return iter(zip(self.runs, self.modules, self.optimisers))

    def agree(self, close: float = 2e-4) -> None:
        """Gradients, parameters and buffers are equal."""
        mine, theirs = ({**dict(each.named_parameters()), **dict(each.named_buffers())} for each in self.modules)
        for name, tensor in mine.items():
            torch.testing.assert_close(theirs[name], tensor, rtol=close, atol=close)
            grads = [each.grad for each in (tensor, theirs[name])]
            assert (grads[0] is None) == (grads[1] is None), name
            if grads[0] is not None:
                torch.testing.assert_close(grads[1], grads[0], rtol=close, atol=close)
                assert grads[1].stride() == grads[0].stride()


def captured() -> int:
    launched = framejit.status().launched
    assert all(each.state == "captured" for each in launched), [(each.state, each.reason) for each in launched]
    return len(launched)


def train(sides: Sides, draw: Callable[[], torch.Tensor], step: Callable[..., Any], close: float = 2e-4) -> None:
    """Steps of both sides with equal inputs and seeds; what they return is compared, and gradients after each."""
    for number in range(STEPS):
        x, results = draw(), []
        for run, module, optimiser in sides:
            torch.manual_seed(number)
            results.append(step(run, module, optimiser, x.clone()))
        torch.testing.assert_close(results[1], results[0], rtol=close, atol=close)
        sides.agree(close)


def plainly(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
    optimiser.zero_grad(set_to_none=True)
    loss = run(module, x)
    loss.backward()
    optimiser.step()
    return loss.detach(), torch.rand(3, device="cuda")


@pytest.mark.parametrize(("make", "draw"), [(lambda: nn.Sequential(Block(), Block()), sequences), (Images, images)])
def test_steps(make: Callable[[], nn.Module], draw: Callable[[], torch.Tensor]) -> None:
    train(Sides(make()), draw, plainly)
    assert captured() == 2


def test_dropout_draws_what_the_plan_draws() -> None:
    train(Sides(nn.Sequential(Block(0.2), Block(0.2)), plans=True), sequences, plainly)
    assert captured() == 2


def test_results_that_are_kept_and_inputs_with_gradients() -> None:
    def run(module: nn.Module, x: torch.Tensor) -> Any:
        h = module(x)
        return h, h.sin().sum()

    kept = []

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        optimiser.zero_grad(set_to_none=True)
        x.requires_grad_()
        h, loss = run(module, x)
        loss.backward()
        kept.append((h, h.detach().clone()))
        return h.detach(), x.grad

    train(Sides(Block(), run), sequences, step)
    assert captured() >= 2  # results that others are made of have a backward of their own
    for h, then in kept:
        assert torch.equal(h, then)


def test_gradients_that_add_up_over_steps() -> None:
    numbers = itertools.count()

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        loss = run(module, x)
        loss.backward()
        if next(numbers) // 2 % 3 == 2:
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        return loss.detach()

    train(Sides(Block()), sequences, step)
    assert captured() == 2


@pytest.mark.parametrize("order", ["first first", "last first", "one backward", "one never"])
def test_two_forwards_before_their_backwards(order: str) -> None:
    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        optimiser.zero_grad(set_to_none=True)
        one, other = run(module, x), run(module, x + 1)
        if order == "one backward":
            (one + 2 * other).backward()
        elif order == "one never":
            other.backward()
        else:
            for loss in (one, other) if order == "first first" else (other, one):
                loss.backward()
        return one.detach(), other.detach()

    train(Sides(Block()), sequences, step)


def test_other_graphs_between_forward_and_backward() -> None:
    """They are launched in memory that graphs share, which is not where the forward keeps what it keeps."""
    others = [Block().cuda().eval() for _ in range(3)]
    launched = [framejit.optimize(other, backend="fuse", mode="reduce-overhead") for other in others]
    with torch.no_grad():
        for _ in range(8):
            for each in launched:
                each(sequences())
    numbers = itertools.count()

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        optimiser.zero_grad(set_to_none=True)
        loss = run(module, x)
        with torch.no_grad():
            seen = launched[next(numbers) // 2 % 3](x)
        loss.backward()
        optimiser.step()
        return loss.detach(), seen

    train(Sides(Block()), sequences, step)
    assert captured() == 5


def test_a_graph_that_is_retained_and_gradients_of_gradients() -> None:
    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        optimiser.zero_grad(set_to_none=True)
        x.requires_grad_()
        loss = run(module, x)
        loss.backward(retain_graph=True)
        loss.backward()
        (grad,) = torch.autograd.grad(run(module, x), [x], create_graph=True)
        grad.pow(2).sum().backward()
        return loss.detach(), x.grad

    train(Sides(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64))), sequences, step)


def test_a_loss_that_is_dropped_and_evaluation_between() -> None:
    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        run(module, x * 2)  # nobody goes backwards from it
        module.eval()
        with torch.no_grad():
            seen = run(module, x)
        module.train()
        return *plainly(run, module, optimiser, x), seen

    train(Sides(Block()), sequences, step)


def test_what_is_checkpointed_and_autocast() -> None:
    def run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for each in module:
                x = checkpoint(each, x, use_reentrant=False)
            return x.float().pow(2).mean()

    train(Sides(nn.Sequential(Block(), Block()), run), sequences, plainly, 3e-2)
    assert captured() == 2


def test_hooks_see_gradients_and_an_exception_leaves_the_next_step_right() -> None:
    numbers = itertools.count()

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        optimiser.zero_grad(set_to_none=True)
        seen: list[torch.Tensor] = []
        weight = module.up.weight

        def hook(grad: torch.Tensor) -> torch.Tensor:
            seen.append(grad.clone())
            if next(numbers) // 2 in (5, 9):
                raise ValueError("oh")
            return grad * 2

        handle = weight.register_hook(hook)
        try:
            run(module, x).backward()
        except ValueError:
            optimiser.zero_grad(set_to_none=True)
            handle.remove()
            run(module, x).backward()
        handle.remove()
        optimiser.step()
        return seen

    train(Sides(Block()), sequences, step)


def test_parameters_that_are_replaced() -> None:
    numbers = itertools.count()

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        if next(numbers) // 2 == 8:
            for parameter in module.parameters():
                parameter.data = parameter.data.clone()
        return plainly(run, module, optimiser, x)

    train(Sides(Block()), sequences, step)
    assert captured() == 2


def test_steps_on_another_stream() -> None:
    other, numbers = torch.cuda.Stream(), itertools.count()

    def step(run: Any, module: nn.Module, optimiser: torch.optim.Optimizer, x: torch.Tensor) -> Any:
        stream = other if next(numbers) // 2 % 2 else torch.cuda.current_stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            found = plainly(run, module, optimiser, x)
        torch.cuda.current_stream().wait_stream(stream)
        return found

    train(Sides(Block()), sequences, step)
