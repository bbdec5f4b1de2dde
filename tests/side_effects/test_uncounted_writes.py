"""Operations that write into arguments without autograd's counting it."""
from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import framejit


def numbers(value: Any) -> Any:
    """Numbers and versions of the tensors in tuples."""
    if isinstance(value, torch.Tensor):
        return value.tolist(), value._version
    return [numbers(item) for item in value] if isinstance(value, tuple) else value


def unscaled(grad: torch.Tensor, found: torch.Tensor) -> Any:
    before = found * 2
    torch._amp_foreach_non_finite_check_and_unscale_([grad], found, torch.tensor(0.5))
    return before, found * 2, grad._version, found._version


def rescaled(scale: torch.Tensor, growth: torch.Tensor, found: torch.Tensor) -> Any:
    before = scale * 2, growth + 1
    torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 2)
    return before, scale * 2, growth + 1, scale._version, growth._version


def leaky(x: torch.Tensor, noise: torch.Tensor) -> Any:
    before = noise * 2
    return before, torch._C._nn.rrelu_with_noise(x, noise, 0.25, 0.25, True), noise * 2, noise._version


def quantized(x: torch.Tensor, lowest: torch.Tensor, highest: torch.Tensor, on: torch.Tensor) -> Any:
    """The running range is written, by a function whose name says nothing of it."""
    before = lowest * 2
    x.add_(1)
    scale, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    made = torch.fused_moving_avg_obs_fake_quant(x, on, on, lowest, highest, scale, zero, 0.5, 0, 255, 0)
    return before, made, lowest * 2, scale, lowest._version, scale._version


def fused_step(weight: torch.Tensor, gradient: torch.Tensor) -> Any:
    moment = torch.zeros(4)
    torch._fused_sgd_(
        [weight[:2], weight[2:]], [gradient[:2], gradient[2:]], [moment[:2], moment[2:]], weight_decay=0.0,
        momentum=0.5, lr=0.5, dampening=0.0, nesterov=False, maximize=False, is_first_step=True,
    )
    return moment, moment._version, weight._version


CASES = [
    (quantized, lambda: (torch.arange(4.0), torch.zeros(1), torch.ones(1), torch.ones(1, dtype=torch.long))),
    (fused_step, lambda: (torch.arange(4.0), torch.arange(4.0))),
    (unscaled, lambda: (torch.tensor([1.0, math.inf]), torch.zeros(1))),
    (unscaled, lambda: (torch.tensor([1.0, 3.0]), torch.zeros(1))),
    (rescaled, lambda: (torch.tensor([8.0]), torch.tensor([1], dtype=torch.int32), torch.zeros(1))),
    (rescaled, lambda: (torch.tensor([8.0]), torch.tensor([1], dtype=torch.int32), torch.ones(1))),
    (leaky, lambda: (torch.arange(4.0) - 2, torch.zeros(4))),
]


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("fn, make", CASES)
def test_uncounted_writes_are_done_once_and_stay_uncounted(fn, make, backend):
    fast = framejit.optimize(fn, backend=backend)
    for _ in range(3):
        expected, got = make(), make()
        assert numbers((fn(*expected), expected)) == numbers((fast(*got), got))


@pytest.mark.filterwarnings("error::framejit.errors.FramejitWarning")
@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("infinite", [None, 0, 2])
def test_a_scaler_inside_of_captured_code(infinite, backend):
    """The step is left out where a gradient is infinite, and the scale goes down."""

    def train(optimize):
        weight = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        optimizer = torch.optim.SGD([weight], lr=0.125)

        def step(x):
            optimizer.zero_grad()
            scaler.scale((weight * x).sum()).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()

        run, seen = optimize(step), []
        for i in range(5):
            run(torch.full((3,), math.inf if i == infinite else i + 1.0))
            seen.append((weight.tolist(), scaler.get_scale(), scaler._get_growth_tracker()))
        return seen

    assert train(lambda fn: fn) == train(lambda fn: framejit.optimize(fn, backend=backend))


def statistics(x):
    mean, variance = torch.zeros(4), torch.ones(4)
    torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=0.5)
    return mean.tolist(), variance[0].item()


def noise(x):
    drawn = torch.zeros(2, 4)
    torch._C._nn.rrelu_with_noise(x, drawn, 0.25, 0.25, True)
    return drawn.sum().item()


def observed(x):
    lowest, highest, scale = torch.zeros(1), torch.ones(1), torch.ones(1)
    on, zero = torch.ones(1, dtype=torch.long), torch.zeros(1, dtype=torch.int32)
    torch.fused_moving_avg_obs_fake_quant(x, on, on, lowest, highest, scale, zero, 0.5, 0, 255, 0)
    return lowest.item(), highest.item(), scale.item()


def infinities(x):
    found, gradient = torch.zeros(()), torch.tensor(1.0)
    torch._amp_foreach_non_finite_check_and_unscale_([x / 0, gradient], found, torch.tensor(0.5))
    return found.item(), gradient.item(), bool(found)


def scales(x):
    scale, steps = torch.ones(()), torch.zeros((), dtype=torch.int32)
    torch._amp_update_scale_(scale, steps, x.sum() * 0, 2.0, 0.5, 1)
    return scale.item(), steps.item()


def stepped(make):
    def step(x):
        weight = make()
        torch._fused_sgd_(
            [weight], [x[0, 0].expand(weight.shape)], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0,
            nesterov=False, maximize=False, is_first_step=True,
        )
        return weight.sum().item()

    return step


def copied(x):
    tensors = [torch.tensor(1.0), torch.tensor(2.0)]
    torch._foreach_copy_(tensors, [x[0, 0], x[0, 1]])
    return [tensor.item() for tensor in tensors]


READ = {
    "a batch norm's statistics": statistics, "noise": noise, "a quantizer's range": observed,
    "infinities": infinities, "a scaler's scale": scales, "a fused step": stepped(lambda: torch.zeros(2)),
    "a fused step of a constant": stepped(lambda: torch.tensor(1.0)), "a list of constants": copied,
}


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", READ)
def test_numbers_read_of_what_was_made_of_constants_and_written_since(name, backend):
    fn = READ[name]
    fast = framejit.optimize(fn, backend=backend)
    for i in range(3):
        x = torch.arange(8.0).reshape(2, 4) / 4 + i
        torch.testing.assert_close(fast(x.clone()), fn(x.clone()), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_scaler_in_a_graph_that_never_met_an_infinity(dtype):
    def train(optimize):
        weight = torch.tensor([0.5, -1.0, 2.0], dtype=dtype, requires_grad=True)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
        optimizer = torch.optim.SGD([weight], lr=0.125)

        def step(x):
            optimizer.zero_grad()
            loss = (weight * x).sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.item()

        run, seen = optimize(step), []
        for i in range(8):
            found = run(torch.full((3,), math.inf if i == 5 else i + 1.0, dtype=dtype))
            seen.append((str(found), weight.tolist(), scaler.get_scale(), scaler._get_growth_tracker()))
        return seen

    assert train(lambda fn: fn) == train(lambda fn: framejit.optimize(fn, backend="fuse"))
