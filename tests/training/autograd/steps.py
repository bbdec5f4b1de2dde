"""Steps of training that are captured as a whole, compared with eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import seed
from twins import same

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


class Net(nn.Module):
    """A network between whose layers steps hook gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)
        self.double()

    def head(self, hidden: torch.Tensor) -> torch.Tensor:
        given: torch.Tensor = self.last(self.norm(torch.tanh(hidden)))
        return given


def momentum() -> tuple[nn.Module, torch.optim.Optimizer]:
    net = Net()
    return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)


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


def updated(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> torch.Tensor:
    """The loss, for which the optimizer has made a step."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def loss_of(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(module(x), y)
