"""Operations that take a number as it is, with numbers that change: values, gradients, random numbers and versions are
eager's, with one entry for all numbers but the first."""

import math

import pytest
import torch
import torch.nn.functional as F

import framejit

from support import seed

NUMBERS = [0.5, 0.25, 0.75, 0.125, 0.9]
LABELS = torch.tensor([2, 0, -100, 3])
SIGNS = torch.tensor([[1.0, -1.0, 1.0, -1.0]])


def normed(x, momentum):
    mean, deviation = torch.zeros(4, dtype=x.dtype), torch.ones(4, dtype=x.dtype)
    result = F.batch_norm(x, mean, deviation, training=True, momentum=momentum)
    return result * F.batch_norm(x, mean, deviation, x[0].detach(), None, True, momentum, 1e-3) + mean + deviation


OPERATIONS = {
    "clamp": lambda x, n: x.clamp(-n, n),
    "clamp from below": lambda x, n: torch.clamp(x, min=n),
    "clip, bounds the wrong way round": lambda x, n: x.clip(n, -n),
    "clamp_": lambda x, n: (x * 1).clamp_(max=n),
    "clamp_max": lambda x, n: x.clamp_max(n),
    "of ratios": lambda x, n: torch.min(x.exp(), x.exp().clamp(1 - n, 1 + n)),
    "hardtanh": lambda x, n: F.hardtanh(x, -n, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "threshold": lambda x, n: F.threshold(x, n, -1.0),
    "threshold to it": lambda x, n: F.threshold(x, 0.0, n),
    "power": lambda x, n: x.abs() ** n,
    "pow": lambda x, n: x.abs().add(0.1).pow(n),
    "power of a probability": lambda x, n: (1 - x.softmax(-1)) ** (4 * n) * x.log_softmax(-1),
    "huber": lambda x, n: F.huber_loss(x, torch.zeros_like(x), delta=n),
    "huber, each": lambda x, n: F.huber_loss(x, x.detach() * 2, reduction="none", delta=n),
    "smooth l1": lambda x, n: F.smooth_l1_loss(x, torch.zeros_like(x), reduction="sum", beta=n),
    "smoothed labels": lambda x, n: F.cross_entropy(x, LABELS, label_smoothing=n),
    "smoothed labels, weighted": lambda x, n: F.cross_entropy(
        x, LABELS, weight=torch.arange(1, 5).to(x), label_smoothing=n, reduction="sum"
    ),
    "smoothed probabilities": lambda x, n: F.cross_entropy(x, x.detach().softmax(-1), label_smoothing=n),
    "margin": lambda x, n: F.margin_ranking_loss(x[:1], x[1:2], SIGNS.to(x), margin=n),
    "full": lambda x, n: x * torch.full((4,), n, dtype=x.dtype),
    "full_like": lambda x, n: x + torch.full_like(x, n),
    "a list": lambda x, n: x * torch.tensor([n, 1.0, 2.0, n * 2]).to(x),
    "dropout": lambda x, n: F.dropout(x, n),
    "dropout, evaluated": lambda x, n: F.dropout(x, n, training=False),
    "dropout in place": lambda x, n: F.dropout(x * 1, n, inplace=True),
    "bernoulli_": lambda x, n: x * x.new_empty((4, 1)).bernoulli_(n) / n,
    "uniform_": lambda x, n: x + torch.zeros_like(x).uniform_(-n, n),
    "uniform_ from a number": lambda x, n: x + torch.zeros_like(x).uniform_(-1, n),
    "normal_": lambda x, n: x + torch.zeros_like(x).normal_(0, n),
    "normal_ around it": lambda x, n: x + torch.zeros_like(x).normal_(n),
    "normal of sizes": lambda x, n: x + torch.normal(0.0, n, (4, 4), dtype=x.dtype),
    "momentum of a batch norm": lambda x, n: normed(x, n),
    "alpha, of halves": lambda x, n: x.add(x.bfloat16(), alpha=n),
    "alpha, of halves and in place": lambda x, n: (x * 1).sub_(x.half(), alpha=n),
    "alpha, of a wider one without dimensions": lambda x, n: x.float().add(x.double().sum(), alpha=n).to(x),
}


def outcome(run, number, dtype, draw):
    seed(draw)
    x = torch.randn(4, 4, dtype=dtype)
    x[0, 0], x[1, 1], x[2, 2] = number, -number, 0.0
    x.requires_grad_()
    result = run(x, number)
    (result * torch.arange(1, result.numel() + 1).view_as(result)).sum().backward()
    return result, x.grad, result._version, torch.rand(2)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_as_in_eager(name, backend):
    f = OPERATIONS[name]
    for dtype in (torch.float64, torch.float32):
        compiled = framejit.optimize(f, backend=backend)
        for draw, number in enumerate(NUMBERS):
            torch.testing.assert_close(
                outcome(compiled, number, dtype, draw), outcome(f, number, dtype, draw), equal_nan=True,
                **({} if dtype == torch.float64 else {"rtol": 1e-5, "atol": 1e-5}),
            )
        assert len(compiled.entries) <= 2
        framejit.reset()


@pytest.mark.parametrize(
    "name", ["clamp", "clamp from below", "hardtanh", "leaky_relu", "threshold", "power", "huber, each"]
)
def test_what_is_not_finite(name):
    f = OPERATIONS[name]
    compiled = framejit.optimize(f, backend="fuse")
    for number in NUMBERS:
        found = []
        for run in (f, compiled):
            x = torch.tensor([math.nan, math.inf, -math.inf, 1.0], dtype=torch.float64, requires_grad=True)
            result = run(x, number)
            result.sum().backward()
            found.append((result, x.grad))
        torch.testing.assert_close(*found, equal_nan=True)


@pytest.mark.parametrize(
    "f, numbers",
    [
        (OPERATIONS["dropout"], [0.5, 0.25, 0.0, 1.0, 0.75, 1.5]),
        (OPERATIONS["bernoulli_"], [0.5, 0.25, 1.0, 0.75, 2.0]),
        (OPERATIONS["uniform_"], [0.5, 0.25, -0.5]),
        (OPERATIONS["normal_"], [0.5, 0.25, 0.0, -0.5]),
        (OPERATIONS["smoothed labels"], [0.5, 0.25, 0.0, 1.0, 2.0]),
        (OPERATIONS["huber"], [0.5, 0.25, 0.0, -1.0]),
        (OPERATIONS["smooth l1"], [0.5, 0.25, 0.0, -1.0]),
        (OPERATIONS["hardtanh"], [0.5, 0.25, -0.5]),
    ],
)
def test_numbers_that_mean_something_else(f, numbers):
    """Or that torch refuses, with its own words."""
    compiled = framejit.optimize(f, backend="fuse")
    for number in numbers:
        found = []
        for run in (f, compiled):
            try:
                found.append(outcome(run, number, torch.float64, 0))
            except (RuntimeError, ValueError) as e:
                found.append((type(e), str(e).splitlines()[0], torch.rand(2)))
        if isinstance(found[0][0], type):
            assert found[0][:2] == found[1][:2]
            torch.testing.assert_close(found[0][2], found[1][2])
        else:
            torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_averages_of_all_batches(backend):
    """The momentum is a number read from the count of batches."""
    outcomes = []
    for compile_step in (lambda f: f, lambda f: framejit.optimize(f, backend=backend)):
        seed(0)
        module = torch.nn.BatchNorm1d(4, momentum=None).double()

        def step(x, module=module):
            result = module(x).square().sum(0)
            result.sum().backward()
            return result

        run = compile_step(step)
        found = [run(torch.randn(3, 4, dtype=torch.float64)) for _ in range(4)]
        module.eval()
        outcomes.append((found, run(torch.randn(3, 4, dtype=torch.float64)), [*module.buffers()], module.weight.grad))
    assert [b._version for b in outcomes[0][2]] == [b._version for b in outcomes[1][2]]
    torch.testing.assert_close(*outcomes)
    report = framejit.inspect(run)
    assert not [graph.reason for graph in report.graphs if graph.reason]


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_backward_by_way_of_averages_that_went_on(backend):
    """Torch does not count that a norm writes its statistics, which a backward of before still has."""
    module = torch.nn.BatchNorm1d(4, momentum=None).double().eval()
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    before = module(x)
    module.train()
    framejit.optimize(module, backend=backend)(torch.randn(3, 4, dtype=torch.float64))
    before.sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_tensors_in_the_place_of_numbers(backend):
    """Torch reads them; they may stay where they are. As LBFGS does."""

    def f(x, y, number):
        return x.add(y, alpha=number), torch.addcmul(x, y, y, value=number), x.sub_(y, alpha=-number), x._version

    for dtype in (torch.float32, torch.float64):
        for other in (torch.float32, torch.float64):
            compiled = framejit.optimize(f, backend=backend)
            for _ in range(3):
                x, y, number = torch.randn(5, dtype=dtype), torch.randn(5, dtype=dtype), torch.randn((), dtype=other)
                torch.testing.assert_close(compiled(x.clone(), y, number), f(x.clone(), y, number))
            (entry,) = compiled.entries
            framejit.reset()


def test_all_numbers_that_differ_are_learnt_at_once():
    def f(x, first, second, third):
        return x * first + second, third * x

    compiled, x = framejit.optimize(f, backend="eager"), torch.randn(3)
    for n in (1.5, 2.5, 3.5, 4.5):
        torch.testing.assert_close(compiled(x, n, n + 1, -n), f(x, n, n + 1, -n))
    assert len(compiled.entries) == 2


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_momentum_and_batches_without_elements(backend):
    """They leave the statistics as they are, and what torch refuses is refused whatever the momentum."""
    outcomes = []
    for compile_step in (lambda f: f, lambda f: framejit.optimize(f, backend=backend)):
        seed(0)
        module, found = torch.nn.BatchNorm1d(4).double(), []
        step = compile_step(lambda x, module=module: module(x))
        for momentum, rows in ((0.1, 3), (0.3, 3), (0.2, 5), (0.4, 0), (0.5, 3), (0.25, 0)):
            module.momentum = momentum
            found += [step(torch.randn(rows, 4, dtype=torch.float64)), module.running_var.clone()]
        for change in (lambda t: t.unsqueeze(0), lambda t: t.requires_grad_()):
            kept, module.running_mean = module.running_mean, change(module.running_mean.clone())
            for _ in range(2):
                with pytest.raises(RuntimeError) as caught:
                    step(torch.randn(3, 4, dtype=torch.float64))
                found += [str(caught.value).partition("\n")[0], module.num_batches_tracked.clone()]
            module.running_mean = kept
        outcomes.append(found)
    for expected, got in zip(*outcomes, strict=True):
        if isinstance(expected, str):
            assert got == expected
        else:
            torch.testing.assert_close(got, expected)
