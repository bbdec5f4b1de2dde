"""Operations that come again and again are lowered a few times, with and without gradients: the plan is the one that
comes of lowering each, and what all units have in common, or hand on, is what it is in eager."""
from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse import compile_graph
from framejit.backends.fuse.cache.plan_record import PlanRecord
from framejit.backends.fuse.layers.expansion import Uneven, expanded
from framejit.backends.fuse.layers.units import LEAST
from framejit.backends.fuse.training import halves
from tests.fuse.long_layers import instructions

DEPTH = LEAST + 4
X = torch.linspace(-1, 1, 48).reshape(6, 8)


@pytest.fixture(autouse=True)
def without_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framejit.config, "cache_size", 0)
    monkeypatch.setattr(framejit.config, "keep_captures", False)


@pytest.fixture
def outcomes(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each graph in which units were found, whether they came to steps that are alike."""
    made: list[bool] = []

    def noting(*given: Any) -> Any:
        try:
            whole = expanded(*given)
        except Uneven:
            made.append(False)
            raise
        made.append(True)
        return whole

    monkeypatch.setattr(compile_graph, "expanded", noting)
    return made


def gradients(model: torch.nn.Module, *args: torch.Tensor) -> list[torch.Tensor]:
    """What a model gives, and the gradients of what it gives, weighted."""
    given = [arg.clone().requires_grad_() for arg in args]
    result = model(*given)
    results = [result] if isinstance(result, torch.Tensor) else [*result]
    loss = sum(((part * part).sum() / (2 + place) for place, part in enumerate(results)), torch.zeros(()))
    parameters = [*model.parameters()]
    return [*results, *torch.autograd.grad(loss, [*parameters, *given], materialize_grads=True)]


def same_as_eager(model: torch.nn.Module, *args: torch.Tensor) -> None:
    model, args = model.double(), tuple(arg.double() for arg in args)
    compiled = framejit.optimize(copy.deepcopy(model))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(framejit.optimize(copy.deepcopy(model))(*args), model(*args))
    for _ in range(2):
        torch.testing.assert_close(gradients(compiled, *args), gradients(model, *args))


class Layer(torch.nn.Module):
    """A layer of two streams, of which `second` says what becomes of the other one."""

    def __init__(self, second: Callable[..., torch.Tensor], stamped: bool) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.scale, self.bias = torch.nn.Parameter(torch.rand(8)), torch.nn.Parameter(torch.rand(8))
        self.second, self.stamped = second, stamped

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.down(F.gelu(self.up(self.norm(x)))) * self.scale + (instructions() if self.stamped else 0.132)
        return x + made, self.second(self, x, other, made)


class Streams(torch.nn.Module):
    def __init__(self, second: Callable[..., torch.Tensor], stamped: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(Layer(second, stamped) for _ in range(DEPTH))

    def forward(self, x: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x, other = layer(x, other)
        return x, other


SECOND: dict[str, Callable[..., torch.Tensor]] = {
    "nothing but itself": lambda layer, x, other, made: other * 1.5 + 0.1,
    "a sum of what layers take": lambda layer, x, other, made: other + x,
    "a sum of what layers make": lambda layer, x, other, made: other + made,
    "a sum of weights": lambda layer, x, other, made: other + layer.bias,
    "a product of weights": lambda layer, x, other, made: other * layer.bias,
    "the greatest": lambda layer, x, other, made: torch.maximum(other, x),
    "what the layer before took": lambda layer, x, other, made: x,
    "in turn": lambda layer, x, other, made: made - other,
}


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("what", SECOND)
def test_a_second_stream(what, stamped):
    same_as_eager(Streams(SECOND[what], stamped), X, X.flip(0) * 0.5)


def test_a_second_stream_of_another_shape():
    model = Streams(SECOND["nothing but itself"], True)
    same_as_eager(model, X, torch.linspace(0, 1, 5))


class Stack(torch.nn.Module):
    """Layers, and around them what `around` does with `through`, which goes through layers."""

    def __init__(self, around: Callable[[Stack, torch.Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 8))
            for _ in range(DEPTH)
        )
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8)
        self.around = around

    def through(self, x: torch.Tensor) -> list[torch.Tensor]:
        """What is behind each layer."""
        found = []
        for layer in self.layers:
            x = x + layer(x)
            found.append(x)
        return found

    def forward(self, x: torch.Tensor) -> Any:
        return self.around(self, self.first(x))


def two_back(model: Stack, x: torch.Tensor) -> torch.Tensor:
    before, now = x, x.sin()
    for layer in model.layers:
        before, now = now, now + layer(before)
    return now


AROUND: dict[str, Callable[[Stack, torch.Tensor], Any]] = {
    "all of them": lambda model, x: model.through(x),
    "the first and the last": lambda model, x: model.through(x)[:: DEPTH - 1],
    "each second": lambda model, x: model.through(x)[1::2],
    "one in the middle": lambda model, x: model.through(x)[DEPTH // 2],
    "their sum": lambda model, x: sum(model.through(x)),
    "what was before": lambda model, x: model.last(model.through(x)[-1]) * x.exp() + x.sigmoid(),
    "what was before, given": lambda model, x: (model.through(x)[-1], x, x.exp()),
    "views of them": lambda model, x: [each.t() for each in model.through(x)],
    "two back": two_back,
    "the first one's weights again": lambda model, x: model.layers[0](model.through(x)[-1]),
    "the last one's weights before": lambda model, x: model.through(model.layers[-1](x))[-1],
    "the same again": lambda model, x: model.through(model.through(x)[-1])[-1],
}


@pytest.mark.parametrize("what", AROUND)
def test_what_is_around(what):
    same_as_eager(Stack(AROUND[what]), X)


def test_one_layer_for_all():
    class Shared(Stack):
        def through(self, x: torch.Tensor) -> list[torch.Tensor]:
            for _ in range(DEPTH):
                x = x + self.layers[0](x)
            return [x]

    same_as_eager(Shared(lambda model, x: model.through(x)[0]), X)


def test_a_number_that_grows_from_layer_to_layer():
    class Growing(Stack):
        def through(self, x: torch.Tensor) -> list[torch.Tensor]:
            places = torch.zeros(6, 1, dtype=x.dtype)
            for layer in self.layers:
                places = places + 0.25
                x = x + layer(x * places)
            return [x]

    same_as_eager(Growing(lambda model, x: model.through(x)[0]), X)


def test_one_layer_that_differs():
    model = Stack(lambda model, x: model.through(x)[-1])
    model.layers[DEPTH // 2][0].eps = 0.5
    same_as_eager(model, X)


# ---- the plan ----


def causal(kind: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    ids = torch.randint(0, 50, (4, 96))
    size = {"vocab_size": 50, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
    size["num_hidden_layers"] = DEPTH
    if kind == "llama":
        config = transformers.LlamaConfig(num_key_value_heads=1, use_cache=False, **size)
        return transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids}
    if kind == "bert":
        return transformers.BertForMaskedLM(transformers.BertConfig(**size)), {"input_ids": ids, "labels": ids}
    config = transformers.GPT2Config(
        n_layer=DEPTH, n_embd=64, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0, use_cache=False,
        resid_pdrop=0.1,
    )
    return transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids}


def records(
    monkeypatch: pytest.MonkeyPatch, model: torch.nn.Module, args: dict[str, torch.Tensor]
) -> tuple[list[PlanRecord], list[torch.Tensor]]:
    """The plans of a model's forward and backward, the largest ones, and the gradients."""
    made: list[PlanRecord] = []
    plan_record = halves.plan_record

    def noting(*given: Any) -> Any:
        found = plan_record(*given)
        made.append(found[0])
        return found

    with monkeypatch.context() as context:
        context.setattr(halves, "plan_record", noting)
        torch.manual_seed(1)
        framejit.optimize(model)(**args).loss.backward()
    found = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    return sorted(made, key=lambda record: len(record.kernels))[-2:], found


@pytest.mark.model
@pytest.mark.parametrize("kind", ["llama", "bert", "gpt2"])
def test_the_plans_are_those_of_lowering_each(monkeypatch, outcomes, kind):
    model, args = causal(kind)
    model(**args)  # transformers says something once
    own, found = records(monkeypatch, copy.deepcopy(model), args)
    assert outcomes == [True, True]
    monkeypatch.setattr(compile_graph, "shortened_nodes", lambda graph: None)
    each, expected = records(monkeypatch, model, args)
    assert outcomes == [True, True]
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    for record, whole in zip(own, each, strict=True):
        for name in (each.name for each in dataclasses.fields(whole.parts)):
            assert repr(getattr(record.parts, name)) == repr(getattr(whole.parts, name)), name
        assert record.externs == whole.externs and record.pure == whole.pure
        assert "layers alike are left out" in record.after_fusion
