"""Layers whose parameters something else has led to before, as an optimizer's list does in a whole step, are stamped
out, too; what leads to other parameters than the layer's is noticed."""

import copy

import pytest
import torch

import framejit

from comparison import assert_same
from support import CountingBackend

DEPTH = 5
X = torch.linspace(-1, 1, 12).reshape(3, 4)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.norm = torch.nn.LayerNorm(4)

    def forward(self, x):
        total = 0
        for number in range(12):
            total += number * 2
        return x + self.norm(self.linear(x)).sin() + total * 1e-3


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.start = torch.nn.Parameter(torch.tensor(1.5))
        self.layers = torch.nn.ModuleList(Layer() for _ in range(DEPTH))

    def forward(self, x):
        x = x * self.start
        for layer in self.layers:
            x = layer(x)
        return x


def step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def state_of(model):
    return [(p.detach(), p.grad) for p in model.parameters()]


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
        lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=True),
    ],
)
def test_whole_steps(stamped, make):
    model, other = Model(), Model()
    fast, ours, theirs = framejit.optimize(step, backend="eager"), make(model.parameters()), make(other.parameters())
    for _ in range(4):
        assert_same(step(other, theirs, X), fast(model, ours, X))
        assert_same(state_of(other), state_of(model))
    assert stamped[0] == DEPTH - 1


def scaled(model, x):
    """What looks at all parameters before the layers are called."""
    total = sum(p.abs().sum() for p in model.parameters())
    return model(x) / total


@pytest.mark.parametrize("grad", [False, True])
def test_parameters_that_were_read_before(stamped, grad):
    model, backend = Model(), CountingBackend()
    fast = framejit.optimize(scaled, backend=backend)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            assert_same(scaled(model, X), fast(model, X))
    assert stamped[0] == DEPTH - 1 and len(backend.graphs) == 1


def swap(model, where):
    """The layer takes another parameter than the list that was read before has."""
    model.layers[where].linear.weight = torch.nn.Parameter(torch.eye(4))


def tie(model, where):
    model.layers[where].linear.bias = model.layers[where].norm.bias


def share(model, where):
    model.layers[where].linear.weight = model.layers[where - 1].linear.weight


def freeze(model, where):
    model.layers[where].linear.weight.requires_grad_(False)


def widen(model, where):
    model.layers[where].double()
    model.layers[where].register_forward_pre_hook(lambda module, args: (args[0].double(),))
    model.layers[where].register_forward_hook(lambda module, args, result: result.float())


@pytest.mark.parametrize("where", [1, DEPTH // 2, DEPTH - 1])
@pytest.mark.parametrize("change", [swap, tie, share, freeze, widen])
def test_what_differs_is_noticed(change, where):
    """Before the first call, and between two calls."""

    def program(model, parameters, x):
        total = sum(p.square().sum() for p in parameters)
        y = model(x).sum() * total
        y.backward()
        return y.detach()

    for early in (True, False):
        model = Model()
        parameters = [*model.parameters()]
        fast = framejit.optimize(program, backend="eager")
        if not early:
            other = copy.deepcopy(model)
            assert_same(program(other, [*other.parameters()], X), fast(model, parameters, X))
            model.zero_grad()
        change(model, where)
        for _ in range(2):
            other, others = copy.deepcopy((model, parameters))
            assert_same(program(other, others, X), fast(model, parameters, X))
            assert_same(state_of(other), state_of(model))
            assert_same([p.grad for p in others], [p.grad for p in parameters])
            for parameter in [*parameters, *model.parameters()]:
                parameter.grad = None


@pytest.mark.parametrize("where", [0, 2, DEPTH - 1])
def test_a_parameter_that_was_written_before(where):
    def program(model, x):
        with torch.no_grad():
            [*model.parameters()][1 + 4 * where].mul_(2.0)
        return model(x)

    model, other = Model(), Model()
    fast = framejit.optimize(program, backend="eager")
    for _ in range(3):
        assert_same(program(other, X), fast(model, X))
    assert_same(state_of(other), state_of(model))
