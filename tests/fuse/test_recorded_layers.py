"""Of layers alike that gradients are wanted of a few are recorded, forward and backward: the record is that of all of
them, operation by operation, and the gradients are eager's, whatever layers have in common, hand on or differ in."""
from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx
from torch.utils.checkpoint import checkpoint

import framejit
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.layers.units import LEAST
from framejit.backends.fuse.training import assemble
from framejit.backends.fuse.training.joint import Recorded
from framejit.backends.fuse.training.recorded_layers import RecordedLayers, recorded_layers
from tests.fuse.long_layers import instructions

DEPTH = LEAST + 2
X = torch.linspace(-1, 1, 48, dtype=torch.float64).reshape(6, 8)


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framejit.config, "cache_size", 0)
    monkeypatch.setattr(framejit.config, "keep_captures", False)


@pytest.fixture(autouse=True)
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each graph that gradients are wanted of, whether a few of its layers were recorded. If so, the record is
    compared with that of all of them."""
    made: list[bool] = []

    def comparing(
        gm: fx.GraphModule, examples: Sequence[torch.Tensor], entrances: Sequence[Entrance], joins: bool
    ) -> RecordedLayers | None:
        found = recorded_layers(gm, examples, entrances, joins)
        made.append(found is not None)
        if found is not None:
            whole = Recorded(gm, entrances, joins=joins)
            joint, expected = found.joint(), whole.joint()
            assert str(text_of(joint.graph)) == str(text_of(expected.graph))
            for backward, other in zip(joint.backwards, expected.backwards, strict=True):
                numbers = [[joint.graph.outputs.index(g) if g else None for g in backward.gradients]]
                numbers.append([expected.graph.outputs.index(g) if g else None for g in other.gradients])
                assert numbers[0] == numbers[1]
            for segment, other in zip(found.nodes, whole.nodes, strict=True):
                assert found.leaves_of(segment) == whole.leaves_of(other)
        return found

    monkeypatch.setattr(assemble, "recorded_layers", comparing)
    return made


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.scale = torch.nn.Parameter(torch.rand(8))
        self.register_buffer("shift", torch.rand(8))

    def forward(self, x: torch.Tensor, shared: torch.Tensor | None = None) -> torch.Tensor:
        made = self.down(F.gelu(self.up(self.norm(x)))) * self.scale + self.shift + instructions()
        return x + (made if shared is None else made * shared)


class Stack(torch.nn.Module):
    def __init__(self, make: Callable[[], torch.nn.Module] = Layer) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.layers = torch.nn.Linear(8, 8), torch.nn.ModuleList(make() for _ in range(DEPTH))
        self.last, self.shared = torch.nn.Linear(8, 8), torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        for layer in self.layers:
            x = layer(x)
        return self.last(x)


def gradients(model: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    result = model(x)
    results = [result] if isinstance(result, torch.Tensor) else [*result]
    loss = sum(((part * part).sum() / (2 + place) for place, part in enumerate(results)), torch.zeros(()))
    wanted = [parameter for parameter in (*model.parameters(), x) if parameter.requires_grad]
    return [*results, *torch.autograd.grad(loss, wanted, allow_unused=True)]


def same_as_eager(model: torch.nn.Module, x: torch.Tensor = X) -> None:
    model = model.double()
    compiled = framejit.optimize(copy.deepcopy(model))
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled, x), gradients(model, x))


def test_a_few_layers_are_recorded(outcomes):
    same_as_eager(Stack())
    assert outcomes == [True]


class WithLoss(Stack):
    def forward(self, x: torch.Tensor) -> Any:
        result = super().forward(x)
        return F.mse_loss(result, torch.ones_like(result)), result


def test_a_loss_and_what_it_is_made_of(outcomes):
    model = WithLoss().double()
    compiled = framejit.optimize(copy.deepcopy(model))
    for _ in range(3):
        found, expected = compiled(X), model(X)
        torch.testing.assert_close(found, expected)
        of_loss = [torch.autograd.grad(m[0], [*net.parameters()], allow_unused=True)
                   for m, net in ((found, compiled), (expected, model))]
        torch.testing.assert_close(*of_loss)
    assert outcomes == [True]
    same_as_eager(WithLoss())  # gradients of both, which is a backward for each


class Taking(Stack):
    """One whose layers all take what `shared` makes."""

    def __init__(self, shared: Callable[[Taking, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.makes = shared

    def forward(self, x: torch.Tensor) -> Any:
        shared = self.makes(self, x)
        x = self.first(x)
        for layer in self.layers:
            x = layer(x, shared)
        return self.last(x)


SHARED: dict[str, Callable[[Taking, torch.Tensor], torch.Tensor]] = {
    "a parameter": lambda model, x: model.shared,
    "what is made of one": lambda model, x: model.shared.exp(),
    "the input": lambda model, x: x,
    "a constant": lambda model, x: torch.arange(8.0, dtype=x.dtype),
    "without gradients": lambda model, x: model.shared.detach() + 1,
}


@pytest.mark.parametrize("what", SHARED)
def test_what_all_layers_take(outcomes, what):
    same_as_eager(Taking(SHARED[what]))
    assert outcomes == [True]


def frozen(module: torch.nn.Module) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(False)


FREEZES: dict[str, tuple[Callable[[Stack], Any], bool]] = {
    "what is before": (lambda model: frozen(model.first), True),
    "what is behind": (lambda model: frozen(model.last), True),
    "a weight of each": (lambda model: [frozen(layer.up) for layer in model.layers], True),
    "a weight of the first": (lambda model: frozen(model.layers[0].up), True),
    "a weight in the middle": (lambda model: frozen(model.layers[DEPTH // 2].up), False),
    "a weight of the last": (lambda model: frozen(model.layers[-1].up), True),
    "the first half": (lambda model: [frozen(layer) for layer in model.layers[: DEPTH // 2]], False),
}


@pytest.mark.parametrize("what", FREEZES)
def test_weights_without_gradients(outcomes, what):
    model = Stack()
    freeze, is_alike = FREEZES[what]
    freeze(model)
    same_as_eager(model)
    assert outcomes == [is_alike]


def test_an_input_without_gradients_below_frozen_layers():
    model = Stack().double()
    frozen(model.first)
    compiled = framejit.optimize(copy.deepcopy(model))
    for _ in range(2):
        found, expected = compiled(X), model(X)
        found.sum().backward(), expected.sum().backward()
        torch.testing.assert_close([p.grad for p in compiled.parameters()], [p.grad for p in model.parameters()])
        compiled.zero_grad(), model.zero_grad()


class Writing(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = super().forward(x)
        made.mul_(self.scale).add_(x)
        return made.t().contiguous().t() if instructions() < 0 else made


class Views(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = super().forward(x).view(6, 2, 4).unbind(1)
        return torch.cat([b, a * 0.5], -1) + x.view(6, 8)


class Without(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            factor = self.norm(x).sigmoid()
        return super().forward(x) * factor + x.detach()


class Number(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > torch.tensor(0.1, dtype=x.dtype), super().forward(x), x)


class Dropping(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(super().forward(x), 0.25)


class Checkpointed(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + checkpoint(super().forward, x, use_reentrant=False)


class Attention(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = super().forward(x).view(1, 6, 2, 4).transpose(1, 2)
        found = F.scaled_dot_product_attention(heads, heads.cos(), heads.sin(), is_causal=True)
        return x + found.transpose(1, 2).reshape(6, 8)


@pytest.mark.parametrize("make", [Writing, Views, Without, Number, Dropping, Checkpointed, Attention])
def test_what_layers_do(make):
    same_as_eager(Stack(make))


def test_what_layers_differ_in():
    model = Stack()
    for number, layer in enumerate(model.layers):
        layer.register_buffer("shift", torch.full((8,), float(number)))
        if number == DEPTH // 2:
            layer.norm.eps = 0.5
    same_as_eager(model)


def test_two_kinds_in_turn(outcomes):
    kinds = itertools.cycle((Layer, Views))
    model = Stack(lambda: next(kinds)())
    model.layers.extend(next(kinds)() for _ in range(DEPTH))
    same_as_eager(model)
    assert outcomes == [True]


BEHIND: dict[str, Callable[[Stack, list[torch.Tensor]], Any]] = {
    "the last two": lambda model, made: (made[-1], made[-2]),
    "the first and the last": lambda model, made: model.last(made[0] * made[-1]),
    "all of them": lambda model, made: made,
    "their sum": lambda model, made: sum(made),
    "weights of one in the middle": lambda model, made: made[-1] @ model.layers[DEPTH // 2].up.weight.t(),
    "weights of the last": lambda model, made: made[-1] @ model.layers[-1].up.weight.t(),
    "weights of all": lambda model, made: made[-1] * sum(layer.scale for layer in model.layers),
    "nothing that has gradients": lambda model, made: (made[-1], made[0].detach()),
    "views": lambda model, made: (made[-1], made[-1].t(), made[-1].t()[0]),
}


@pytest.mark.parametrize("what", BEHIND)
def test_what_comes_behind(what):
    class Behind(Stack):
        def forward(self, x: torch.Tensor) -> Any:
            x, made = self.first(x), []
            for layer in self.layers:
                x = layer(x)
                made.append(x)
            return BEHIND[what](self, made)

    same_as_eager(Behind())


def test_gradients_of_gradients(outcomes):
    model = Stack().double()
    compiled = framejit.optimize(copy.deepcopy(model))

    def second(net: torch.nn.Module) -> list[torch.Tensor]:
        x = X.clone().requires_grad_()
        (first,) = torch.autograd.grad(net(x).sin().sum(), x, create_graph=True)
        return [first, *torch.autograd.grad((first * first).sum(), [*net.layers.parameters()], allow_unused=True)]

    for _ in range(2):
        torch.testing.assert_close(second(compiled), second(model))
    assert outcomes[0]


def test_gradients_that_lie_otherwise():
    model = Stack().double()
    compiled = framejit.optimize(copy.deepcopy(model))
    for incoming in (torch.ones(6, 8), torch.ones(8, 6).t(), torch.ones(()).expand(6, 8)):
        found = [
            torch.autograd.grad(net(X), [*net.layers.parameters()], incoming.double()) for net in (compiled, model)
        ]
        torch.testing.assert_close(*found)
