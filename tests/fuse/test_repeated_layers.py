"""Layers alike are compiled once: the plan is the one that comes of compiling each of them, and where one is connected
otherwise than the others all of them are compiled."""
from __future__ import annotations

import copy
import dataclasses
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.backends.fuse import backend, compile_graph
from framejit.backends.fuse.cache.plan_record import PlanRecord
from framejit.backends.fuse.layers.python_text import python_text
from framejit.backends.fuse.layers.repetition import repetition_in
from framejit.backends.fuse.layers.units import KEPT, LEAST
from framejit.backends.fuse.targets.cpu import CpuTarget
from framejit.backends.late_python import LONG
from tests.fuse.long_layers import instructions

DEPTH = 10
X = torch.linspace(-1, 1, 48).reshape(6, 8)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.scale = torch.nn.Parameter(torch.rand(8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        made = self.down(F.gelu(self.up(self.norm(x)))) * self.scale + instructions()
        return x + (made if mask is None else made * mask)


class Narrow(Layer):
    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return x.softmax(-1) + super().forward(x, mask)


class Stack(torch.nn.Module):
    def __init__(self, *makers: Callable[[], torch.nn.Module], depth: int = DEPTH) -> None:
        super().__init__()
        torch.manual_seed(0)
        makers = makers or (Layer,)
        self.layers = torch.nn.ModuleList(makers[number % len(makers)]() for number in range(depth))
        self.first, self.last = torch.nn.Linear(8, 8), torch.nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.through(self.first(x)))

    def through(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, PlanRecord]]:
    """The plans that were made, each with how many layers its graph was shortened by."""
    made: list[tuple[int, PlanRecord]] = []
    plan_record = backend.plan_record

    def noting(passed: Any, tracked: Any, graph: Any, short: Any = None) -> Any:
        record, launches = plan_record(passed, tracked, graph, short)
        made.append((0 if short is None else len(short()[0].units.units) - KEPT, record))
        return record, launches

    monkeypatch.setattr(backend, "plan_record", noting)
    monkeypatch.setattr(framejit.config, "cache_size", 0)
    return made


def same_plans(monkeypatch: pytest.MonkeyPatch, compiled: list[tuple[int, PlanRecord]], model: Any, *args: Any) -> None:
    """Compile a model with layers alike compiled once, and with each compiled: the same results and the same plan."""
    with torch.no_grad():
        expected = model(*args)
        torch.testing.assert_close(framejit.optimize(model)(*args), expected)
        (left_out, record), = compiled
        assert left_out
        compiled.clear()
        with monkeypatch.context() as each:
            each.setattr(backend, "shortened", lambda gm, examples: None)
            each.setattr(compile_graph, "shortened_nodes", lambda graph: None)
            each.setattr(framejit.config, "keep_captures", False)
            torch.testing.assert_close(framejit.optimize(copy.deepcopy(model))(*args), expected)
    (none, whole), = compiled
    assert none == 0
    for name in (each.name for each in dataclasses.fields(whole.parts)):
        assert repr(getattr(record.parts, name)) == repr(getattr(whole.parts, name)), name
    for own, other in zip(record.kernels, whole.kernels, strict=True):
        assert (own.origins, own.moved, own.device) == (other.origins, other.moved, other.device)
        named = {"remarks": "", "buffers": ()}  # buffers are numbered behind the graph's inputs
        assert own.described | named == other.described | named
    assert record.externs == whole.externs and record.pure == whole.pure and record.plain == whole.plain


def test_the_plan_is_that_of_compiling_each(monkeypatch, compiled):
    same_plans(monkeypatch, compiled, Stack().eval(), X)
    assert "layers alike are left out" in compiled[0][1].after_fusion or compiled[0][0] == 0


def test_a_target_that_makes_nothing_of_names(monkeypatch, compiled):
    monkeypatch.setattr(CpuTarget, "renames", False)
    same_plans(monkeypatch, compiled, Stack().eval(), X)


def test_two_kinds_in_turn(monkeypatch, compiled):
    same_plans(monkeypatch, compiled, Stack(Layer, Narrow, depth=2 * LEAST).eval(), X)


class Masked(Stack):
    """What comes before is taken by all layers; more comes behind."""

    def forward(self, x: torch.Tensor) -> Any:
        mask, x = (x > 0).to(x.dtype), self.first(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.last(x), (x * mask).sum(), x


def test_what_all_layers_take_and_several_results(monkeypatch, compiled):
    same_plans(monkeypatch, compiled, Masked().eval(), X)


class Hidden(Stack):
    """What each layer takes is returned, and what the last one gives twice."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.first(x)
        states = [x]
        for layer in self.layers:
            x = layer(x)
            states.append(x)
        return self.last(x), states, x


class Inner(Layer):
    """A layer that keeps what others may go on with, made in two ways."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        key = torch.cat([torch.zeros(0, 8), self.norm(x)])
        kept.append((key, F.gelu(self.up(key)), len(kept)))
        return super().forward(x, torch.sigmoid(key))


class Caching(Stack):
    def __init__(self, *makers: Callable[[], torch.nn.Module]) -> None:
        super().__init__(*makers or (Inner,))

    def forward(self, x: torch.Tensor) -> Any:
        kept: list[Any] = []
        for layer in self.layers:
            x = layer(x, kept)
        return kept, self.last(x)


@pytest.mark.parametrize("make", [Hidden, Caching])
def test_results_of_each_layer(monkeypatch, compiled, make):
    same_plans(monkeypatch, compiled, make().eval(), X)


class Written(Stack):
    """The last layer's result is written into."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.through(x)
        x.mul_(2)
        return self.last(x), x


def test_a_write_behind_the_layers(monkeypatch, compiled):
    model = Written().eval()
    same_plans(monkeypatch, compiled, model, X)
    with torch.no_grad():
        assert framejit.optimize(model)(X)[1]._version == model(X)[1]._version == 1


class Called(torch.nn.Module):
    """A model of a library, for its first result."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        transformers = pytest.importorskip("transformers")
        size = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2, "vocab_size": 50}
        torch.manual_seed(0)
        self.known = {} if kind == "bert" else {"use_cache": False}
        if kind == "llama":
            config = transformers.LlamaConfig(num_hidden_layers=LEAST, num_key_value_heads=1, **size)
            self.model = transformers.LlamaModel(config)
        elif kind == "gpt2":
            config = transformers.GPT2Config(
                n_layer=LEAST, n_embd=32, n_head=2, vocab_size=50, bos_token_id=0, eos_token_id=0
            )
            self.model = transformers.GPT2Model(config)
        else:
            self.model = transformers.BertModel(transformers.BertConfig(num_hidden_layers=LEAST, **size))
        self.eval()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens, **self.known)[0]


@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_models_of_a_library(monkeypatch, compiled, kind):
    same_plans(monkeypatch, compiled, Called(kind), torch.arange(20).reshape(2, 10))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 10])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bert"])
def test_models_of_a_library_on_a_gpu(monkeypatch, compiled, kind, rows):
    same_plans(monkeypatch, compiled, Called(kind).cuda(), torch.arange(rows).reshape(1, rows).cuda())


def captured(model: torch.nn.Module, *args: Any) -> torch.fx.GraphModule:
    found: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, examples: Any) -> Any:
        found.append(gm)
        return gm.forward

    with torch.no_grad():
        framejit.optimize(model, backend=keep)(*args)
    (gm,) = found
    return gm


def inputs_of(gm: torch.fx.GraphModule, model: torch.nn.Module) -> list[torch.Tensor]:
    """What a graph of a model is given, by the names of the parameters."""
    parameters = {f"self_{name.replace('.', '_')}": parameter for name, parameter in model.named_parameters()}
    names = [re.sub("_+", "_", node.name) for node in gm.graph.find_nodes(op="placeholder")]
    return [parameters.get(name, X) for name in names]


@pytest.mark.parametrize("make", [Stack, Masked, Hidden, Caching, lambda: Called("llama"), lambda: Called("gpt2")])
def test_python_is_written_as_torch_writes_it(monkeypatch, make):
    model = make().eval()
    graph = captured(model, torch.arange(20).reshape(2, 10) if isinstance(model, Called) else X).graph
    expected = graph.python_code("self")
    python_code, written = torch.fx.Graph.python_code, []
    with monkeypatch.context() as counting:
        counting.setattr(
            torch.fx.Graph, "python_code", lambda self, *args: written.append(self) or python_code(self, *args)
        )
        assert python_text(graph) == (expected.src, expected.globals)
    assert len(written) == 1 and len(written[0].nodes) < len(graph.nodes)


# ---- results that are more than new tensors ----


class Viewing(Inner):
    """For autograd what it keeps is a view of what nobody has."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        key = self.norm(x)
        kept.append(key.view(3, 2, 8).transpose(0, 1))
        return Layer.forward(self, x, torch.sigmoid(key))


class Sharing(Inner):
    """What it gives, and a part of it."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        given = Layer.forward(self, x)
        kept += [given, given[1:]]
        return given


class Writing(Inner):
    """It writes into what it keeps."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        key = self.norm(x)
        kept.append(key)
        given = Layer.forward(self, x, torch.sigmoid(key))
        key.mul_(2)
        return given


class Apart(Inner):
    """What it keeps has another counter of writes than what it shares memory with."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        given = Layer.forward(self, x)
        kept += [given, given.data]
        return given


class Weighed(Inner):
    """It keeps a parameter, and a view of one."""

    def forward(self, x: torch.Tensor, kept: list[Any]) -> torch.Tensor:  # type: ignore[override]
        kept += [self.scale, self.scale[2:]]
        return Layer.forward(self, x)


@pytest.mark.parametrize("make", [Viewing, Sharing, Writing, Apart, Weighed])
def test_results_that_share_memory_or_are_written(make):
    model = Caching(make).eval()
    fast = framejit.optimize(model)
    for x in (X, X + 1):
        with torch.no_grad():
            expected, got = model(x), fast(x)
            assert [about(tensor) for tensor in got[0]] == [about(tensor) for tensor in expected[0]]
            for results in (expected, got):
                for number, tensor in enumerate(results[0]):
                    if tensor._base is None and not isinstance(tensor, torch.nn.Parameter):
                        tensor.add_(number)
        torch.testing.assert_close(got, expected)


def about(tensor: torch.Tensor) -> Any:
    base = tensor._base
    return (
        tensor.stride(), tensor.storage_offset(), tensor._version, isinstance(tensor, torch.nn.Parameter),
        None if base is None else (base.shape, base._version),
    )


# ---- connected otherwise ----


class Returning(Stack):
    """A result of a layer in the middle is returned."""

    def through(self, x: torch.Tensor) -> torch.Tensor:
        kept = x
        for number, layer in enumerate(self.layers):
            x = layer(x)
            kept = x if number == 5 else kept
        return x + kept


class Between(Stack):
    """Something comes between two layers."""

    def through(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number == 4:
                x = x.sin()
        return x


class Shared(Stack):
    """A weight of a layer is read outside of it, too."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x) + self.layers[6].scale.sum()


class Tied(Stack):
    """Two layers have a weight in common."""

    def __init__(self) -> None:
        super().__init__()
        self.layers[7].scale = self.layers[3].scale


class Skipping(Stack):
    """Each layer takes what the one before the last gave."""

    def through(self, x: torch.Tensor) -> torch.Tensor:
        before = x
        for layer in self.layers:
            x, before = layer(before, x), x
        return x


@pytest.mark.parametrize("make", [Returning, Between, Shared, Tied, Skipping])
def test_layers_that_are_connected_otherwise(compiled, make):
    model = make().eval()
    with torch.no_grad():
        torch.testing.assert_close(framejit.optimize(model)(X), model(X))
    assert [left_out for left_out, _ in compiled] == [0]


class Counting(Stack):
    """An input is written into."""

    def forward(self, x: torch.Tensor, count: torch.Tensor) -> Any:
        x = super().forward(x)
        count.add_(x.sum())
        return x


def test_a_write_into_an_input(compiled):
    model, given, expected = Counting().eval(), torch.zeros(1), torch.zeros(1)
    with torch.no_grad():
        torch.testing.assert_close(framejit.optimize(model)(X, given), model(X, expected))
    torch.testing.assert_close(given, expected)
    assert [left_out for left_out, _ in compiled] == [0]


def test_a_weight_that_lies_otherwise(compiled):
    model = Stack().eval()
    model.layers[6].up.weight = torch.nn.Parameter(torch.rand(8, 16).t())
    with torch.no_grad():
        torch.testing.assert_close(framejit.optimize(model)(X), model(X))
    assert [left_out for left_out, _ in compiled] == [0]


def test_few_layers(compiled):
    model = Stack(depth=LEAST - 1).eval()
    with torch.no_grad():
        torch.testing.assert_close(framejit.optimize(model)(X), model(X))
    assert [left_out for left_out, _ in compiled] == [0]


def test_what_one_kernel_makes_for_all_layers(compiled):
    """The first layer's bias is laid out for each of those behind it, by one kernel."""
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(num_layers=LEAST + 1, d_model=32, d_ff=64, num_heads=2, d_kv=16, vocab_size=50)
    torch.manual_seed(0)
    model, tokens = transformers.T5EncoderModel(config).eval(), torch.arange(20).reshape(2, 10)
    with torch.no_grad():
        got, expected = framejit.optimize(model)(tokens)[0], model(tokens)[0]
    torch.testing.assert_close(got, expected)
    assert [left_out for left_out, _ in compiled] == [0]


def test_gradients(compiled):
    model, fast = Stack(), framejit.optimize(Stack())
    for _ in range(2):
        expected, got = model(X), fast(X)
        torch.testing.assert_close(got, expected)
        expected.sum().backward()
        got.sum().backward()
    for own, other in zip(model.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(other.grad, own.grad)
    assert not compiled


def test_each_layer_has_its_own_weights_in_a_call_that_is_found(compiled):
    """Weights that change, and others in their place."""
    model = Stack().eval()
    fast = framejit.optimize(model)
    with torch.no_grad():
        fast(X)
        for number in (0, 1, 3, 4, 8, 9):
            model.layers[number].scale.mul_(-2)
            torch.testing.assert_close(fast(X), model(X))
            model.layers[number].up.weight = torch.nn.Parameter(torch.rand(16, 8))
            torch.testing.assert_close(fast(X), model(X))


def test_copies_of_a_graph_say_nothing_of_layers():
    gm = captured(Stack().eval(), X)
    assert repetition_in(gm.graph) is not None
    assert repetition_in(copy.deepcopy(gm).graph) is None
    assert repetition_in(pickle.loads(pickle.dumps(gm)).graph) is None


@pytest.mark.parametrize("backend", ["eager", "fuse"])
def test_a_long_graph_is_written_when_it_runs(backend):
    """Its Python, which a plan has for its inputs that it does not take."""
    model = Stack(depth=60).eval()
    assert len(captured(model, X).graph.nodes) > LONG
    gm = captured(model, X)
    copied = copy.deepcopy(gm)
    fast = framejit.optimize(model, backend=backend)
    with torch.no_grad():
        expected = model(X)
        for _ in range(8):  # the first calls measure both
            torch.testing.assert_close(fast(X), expected)
        given = [*map(torch.as_tensor, inputs_of(gm, model))]
        for module in (gm, copied, pickle.loads(pickle.dumps(gm))):
            torch.testing.assert_close(module(*given)[0], expected)
            assert module.code.count("functional.layer_norm(") == 60
