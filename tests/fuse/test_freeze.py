"""`optimize(freeze=True)`: what depends on weights alone is computed once, results are eager's, and every change of a
weight that torch counts is noticed."""

from __future__ import annotations

import copy
import gc
import pickle
import textwrap
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import framejit
from framejit import events
from framejit.backends.fuse.graph.passes import fold_norms
from framejit.errors import FramejitWarning, InvalidOption

import forked
from comparison import assert_same


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


def trained(module: nn.Module) -> nn.Module:
    """The module in eval mode, its batch norms with statistics that are not those of a new one."""
    for part in module.modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.track_running_stats:
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
            if part.affine:
                nn.init.normal_(part.weight)
                nn.init.normal_(part.bias)
    return module.eval()


def network() -> nn.Module:
    return trained(
        nn.Sequential(
            nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3), nn.BatchNorm2d(6)
        )
    )


def image() -> torch.Tensor:
    return torch.randn(2, 3, 12, 12)


def assert_close(module: nn.Module, result: torch.Tensor, *args: torch.Tensor) -> None:
    """That a result lies as eager's does, and as near to the exact one as a few of eager's own errors."""
    expected = module(*args)
    exact = copy.deepcopy(module).double()(*(arg.double() if arg.is_floating_point() else arg for arg in args))
    assert (result.shape, result.stride(), result.dtype) == (expected.shape, expected.stride(), expected.dtype)
    error, eagers = (float((one.double() - exact).abs().max()) for one in (result, expected))
    assert error <= 4 * eagers + 4 * torch.finfo(result.dtype).eps * float(exact.abs().max()), (error, eagers)


def graphs_of(function):
    return framejit.inspect(function).graphs


def folded_norms(function) -> list[int]:
    return [graph.folded_norms for graph in graphs_of(function)]


def recompiles() -> list[str]:
    return [failure[0] for event in events.events("recompile") for failure in event.failures]


# ---- what is folded -------------------------------------------------------------------------------


class Tail(nn.Module):
    """A part, and a batch norm behind it."""

    def __init__(self, part: nn.Module, norm: nn.Module) -> None:
        super().__init__()
        self.part, self.norm = part, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.part(x))


NORMS = {
    "conv1d": (lambda: Tail(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6)), (2, 4, 10)),
    "conv2d": (lambda: Tail(nn.Conv2d(4, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "conv2d same": (lambda: Tail(nn.Conv2d(4, 6, 3, padding="same"), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "conv2d, no bias": (lambda: Tail(nn.Conv2d(4, 6, 3, bias=False), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "conv2d, groups": (lambda: Tail(nn.Conv2d(4, 8, 3, groups=2), nn.BatchNorm2d(8)), (2, 4, 10, 10)),
    "conv3d": (lambda: Tail(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3)), (2, 2, 5, 5, 5)),
    "transposed": (lambda: Tail(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.BatchNorm2d(6)), (2, 4, 5, 5)),
    "transposed, groups": (
        lambda: Tail(nn.ConvTranspose2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6)),
        (2, 4, 5, 5),
    ),
    "linear": (lambda: Tail(nn.Linear(5, 7), nn.BatchNorm1d(7)), (4, 5)),
    "linear, no bias": (lambda: Tail(nn.Linear(5, 7, bias=False), nn.BatchNorm1d(7)), (4, 5)),
    "not affine": (lambda: Tail(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, affine=False)), (2, 4, 10, 10)),
    "float64": (lambda: Tail(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)).double(), (2, 4, 10, 10)),
    "bfloat16": (lambda: Tail(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)).bfloat16(), (2, 4, 10, 10)),
}


@pytest.mark.parametrize("name", NORMS)
def test_batch_norms_are_folded(name):
    make, shape = NORMS[name]
    module = trained(make())
    x = torch.randn(shape, dtype=module.part.weight.dtype)
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    with torch.no_grad():
        result = fast(x)
        assert_close(module, result, x)
        (graph,) = graphs_of(fast)
        ours = name.startswith("linear") and any(kernel.name.startswith("linear") for kernel in graph.kernels)
        assert graph.folded_norms == 1 and graph.frozen_bytes > 0
        assert ours and not graph.externs or graph.kernels == () and len(graph.externs) == 1
        assert "1 batch norm folded" in str(graph)
        assert_close(module, fast(2 * x), 2 * x)
    assert not recompiles()


@pytest.mark.parametrize("name", [name for name in NORMS if name.startswith(("conv", "trans", "bfloat"))])
def test_biases_that_are_added_apart(name, monkeypatch):
    """Convolutions on a GPU have no bias of their own: it is added behind them."""
    monkeypatch.setattr(fold_norms, "bias_is_added_apart", lambda product: True)
    make, shape = NORMS[name]
    module = trained(make())
    x = torch.randn(shape, dtype=module.part.weight.dtype)
    fast = framejit.optimize(nn.Sequential(module, nn.ReLU()), fullgraph=True, freeze=True)
    with torch.no_grad():
        assert_close(nn.Sequential(module, nn.ReLU()), fast(x), x)
    (graph,) = graphs_of(fast)
    assert graph.folded_norms == 1 and len(graph.kernels) == 1 and len(graph.externs) == 1


def _wide(*after: nn.Module) -> nn.Module:
    return trained(nn.Sequential(nn.Conv2d(64, 64, 3, bias=False), nn.BatchNorm2d(64), *after))


def test_norms_that_kernels_compute_along_are_folded_only_where_that_takes_no_memory():
    x = torch.randn(1, 64, 4, 4)
    for after, norms in (
        ((), 1), ((nn.ReLU(),), 0), ((nn.ReLU(inplace=True), nn.Conv2d(64, 4, 1)), 0), ((nn.Conv2d(64, 4, 1),), 1),
    ):
        module = _wide(*after)
        fast = framejit.optimize(module, freeze=True)
        with torch.no_grad():
            assert_close(module, fast(x), x)
            (graph,) = graphs_of(fast)
            assert (graph.folded_norms, graph.frozen_bytes > 64 * 64 * 9 * 4) == (norms, norms == 1) and len(
                graph.kernels
            ) == 1 - norms
            module[0].weight.mul_(2)
            assert_close(module, fast(x), x)
        assert len(events.events("recompile")) == norms
        framejit.reset()
    module = _wide(nn.ReLU())
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):  # where the weights are converted anyway
        assert_same(module(x), fast(x), atol=0.3, rtol=3e-2)
    assert folded_norms(fast) == [1]


class Twice(Tail):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.part(x)
        return self.norm(y) + y


class Returned(Tail):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.part(x)
        return self.norm(y), y


class Written(Tail):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.part(x).relu_())


class Lines(Tail):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.part(x.view(2, 6, 5)))  # channels are the lines, not what the layer gives


NOT_FOLDED = {
    "used twice": (lambda: Twice(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "returned": (lambda: Returned(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "written between": (lambda: Written(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)), (2, 4, 10, 10)),
    "other channels": (lambda: Lines(nn.Linear(5, 7), nn.BatchNorm1d(6)), (12, 5)),
    "statistics of the batch": (
        lambda: Tail(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6, track_running_stats=False)),
        (2, 4, 10, 10),
    ),
}


@pytest.mark.parametrize("name", NOT_FOLDED)
def test_batch_norms_that_are_not_folded(name):
    make, shape = NOT_FOLDED[name]
    module, x = trained(make()), torch.randn(shape)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert_same(module(x), fast(x), atol=1e-5, rtol=1e-5)
    assert sum(folded_norms(fast)) == 0


def test_norms_whose_weights_would_overflow_are_not_folded():
    module = trained(Tail(nn.Conv2d(4, 6, 3), nn.BatchNorm2d(6)))
    module.norm.running_var.fill_(0)
    module.norm.eps = 1e-38
    with torch.no_grad():
        module.part.weight.fill_(1e25)
        module.part.bias.zero_()
        module.norm.running_mean.zero_()
        x = torch.full((1, 4, 3, 3), 1e-25)
        fast = framejit.optimize(module, freeze=True)
        assert_same(module(x), fast(x), rtol=1e-5)
    assert folded_norms(fast) == [0]


def test_training_mode_is_not_folded_and_counts():
    module = network().train()
    fast, plain = framejit.optimize(copy.deepcopy(module), freeze=True), module
    x = image()
    with torch.no_grad():
        for _ in range(3):
            assert_same(plain(x), fast(x), atol=1e-5, rtol=1e-5)
    assert all(
        torch.allclose(a, b) for a, b in zip(plain.state_dict().values(), fast.state_dict().values(), strict=True)
    )
    assert sum(folded_norms(fast)) == 0
    fast.eval()
    with torch.no_grad():
        assert_close(module.eval().requires_grad_(False), fast(x), x)
    assert 2 in folded_norms(fast)


class Prepared(nn.Module):
    """Everything that is done to a weight before it is used."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(64, 64)), nn.Parameter(torch.rand(64, 1))
        self.register_buffer("mask", (torch.rand(64, 64) > 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = torch.where(self.mask, self.weight * self.scale.exp(), 0.0)
        return F.linear(x, weight / weight.norm()) + F.linear(x, weight.t())


def test_what_depends_on_weights_alone_is_computed_once():
    module, x = Prepared().eval(), torch.randn(3, 64)
    fast, thawed = framejit.optimize(module, freeze=True), framejit.optimize(module)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        thawed(x)
        (graph,), (before,) = graphs_of(fast), graphs_of(thawed)
        # products, one of which adds, are of two tensors, of which one is made of the other
        assert len(before.kernels) > len(graph.kernels) and len(graph.kernels) <= 2
        assert 2 * 64 * 64 * 4 <= graph.frozen_bytes <= 4 * 64 * 64 * 4
        module.mask.logical_not_()
        assert_close(module, fast(x), x)
        module.scale.zero_()
        assert_close(module, fast(x), x)


def test_casts_of_autocast_are_done_once():
    module, x = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8)).eval(), torch.randn(4, 16)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert_same(module(x), fast(x), atol=2e-2, rtol=2e-2)
        (graph,) = graphs_of(fast)
        assert graph.frozen_bytes == 2 * sum(p.numel() for p in module.parameters())
        module[0].weight.neg_()
        assert_same(module(x), fast(x), atol=2e-2, rtol=2e-2)


def test_views_of_weights_are_not_copied():
    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 6))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x @ self.weight.t()[:, 2:5], self.weight[1], self.weight

    module, x = Views().eval(), torch.randn(4, 6)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        for _ in range(2):
            expected, got = module(x), fast(x)
            assert (
                torch.allclose(expected[0], got[0])
                and got[2] is module.weight
                and got[1].data_ptr() == module.weight[1].data_ptr()
            )
            module.weight.add_(1)
    assert graphs_of(fast)[0].frozen_bytes == 0 and not recompiles()  # nothing was assumed of the content


def test_what_is_returned_is_made_anew():
    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            twice = self.weight * 2
            return x @ twice, twice

    module, x = Made().eval(), torch.randn(4, 8)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        first = fast(x)[1]
        first.zero_()
        assert_same(module(x), fast(x), atol=1e-5, rtol=1e-5)


def test_weights_of_integers_are_not_made_larger():
    class Quantised(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randint(-128, 127, (512, 512), dtype=torch.int8))
            self.register_buffer("scale", torch.rand(512, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.weight.float() * self.scale)

    module, x = Quantised().eval(), torch.randn(2, 512)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert_same(module(x), fast(x), atol=1e-2, rtol=1e-4)
    assert graphs_of(fast)[0].frozen_bytes == 0


def test_random_numbers_and_written_weights_are_computed_each_time():
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8, 8))
            self.register_buffer("count", torch.zeros(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count.add_(1)
            return x @ F.dropout(self.weight, 0.5, True) + self.count * 2

    module = Noisy().eval()
    fast, x = framejit.optimize(copy.deepcopy(module), freeze=True), torch.randn(4, 8)
    with torch.no_grad():
        for seed in range(3):
            torch.manual_seed(seed)
            expected = module(x)
            torch.manual_seed(seed)
            assert torch.allclose(expected, fast(x), atol=1e-5)
    assert fast.count.tolist() == [3.0] * 8 and not recompiles()


def test_arguments_that_share_memory_with_a_folded_weight():
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x.add_(1)
            return x @ (self.weight * 2)

    module = Writes().eval()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        fast(torch.randn(4, 4))
        assert graphs_of(fast)[0].frozen_bytes > 0
        other = copy.deepcopy(module)
        expected = other(other.weight.detach())
        assert torch.allclose(fast(module.weight.detach()), expected) and torch.equal(module.weight, other.weight)


# ---- changes --------------------------------------------------------------------------------------


def _load(module):
    module.load_state_dict(
        {name: value * 1.5 if value.is_floating_point() else value for name, value in module.state_dict().items()}
    )


def _assign(module):
    module.load_state_dict(
        {
            name: value.clone() + 0.5 if value.is_floating_point() else value
            for name, value in module.state_dict().items()
        },
        assign=True,
    )


def _step(module):
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with torch.enable_grad():
        module(image()).square().mean().backward()
    optimizer.step()


CHANGES = {
    "a weight": lambda m: m[0].weight.mul_(2),
    "a bias": lambda m: m[3].bias.copy_(torch.randn(6)),
    "statistics": lambda m: m[1].running_var.add_(1),
    "an item": lambda m: m[4].weight.__setitem__(0, 5.0),
    "load_state_dict": _load,
    "load_state_dict, assigned": _assign,
    "an optimizer": _step,
    "data": lambda m: setattr(m[3].weight, "data", torch.randn_like(m[3].weight)),
    "another parameter": lambda m: setattr(m[0], "weight", nn.Parameter(torch.randn_like(m[0].weight))),
    "another buffer": lambda m: setattr(m[1], "running_mean", torch.randn(8)),
    "another module": lambda m: m.__setitem__(1, trained(nn.BatchNorm2d(8))),
    "no bias": lambda m: setattr(m[3], "bias", None),
    "training and back": lambda m: (m.train(), m(image()), m.eval()),
    "prune": lambda m: prune.l1_unstructured(m[0], "weight", 0.5),
    "weight norm": lambda m: torch.nn.utils.parametrizations.weight_norm(m[0]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_are_noticed(change):
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        assert folded_norms(fast) == [2]
        CHANGES[change](module)
        for _ in range(2):
            assert torch.allclose(module(x), fast(x), atol=1e-4, rtol=1e-4)
        assert len(events.events("graph")) == 2


class OwnNorm(nn.Module):
    """Keeps statistics without counting batches."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Conv2d(3, 4, 3)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(self.part(x), self.mean, self.var, training=self.training)


def test_statistics_whose_writes_cannot_be_seen_are_not_folded():
    module, x = OwnNorm().eval(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        fast(x)
        module.train()(5 * image() + 1)
        module.eval()
        assert torch.allclose(module(x), fast(x), atol=1e-5)
    assert sum(folded_norms(fast)) == 0


def test_weights_that_share_memory_but_not_the_count_of_writes():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(6, 6, bias=False)
            self.two = nn.Linear(6, 6, bias=False)
            self.two.weight = nn.Parameter(self.one.weight.data)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.one(x) @ (self.two.weight * 2)

    module, x = Tied().eval(), torch.randn(3, 6)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert torch.allclose(module(x), fast(x), atol=1e-5) and graphs_of(fast)[0].frozen_bytes > 0
        module.one.weight.mul_(2)
        assert torch.allclose(module(x), fast(x), atol=1e-5)


def test_the_message_names_the_weight():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        fast(x)
        module[3].weight.mul_(2)
        fast(x)
    assert recompiles() == ["something was written into 'self[3].weight', whose content was taken to stay"]


def test_outdated_entries_and_what_they_hold_are_dropped():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        for _ in range(4):
            fast(x)
            module[0].weight.mul_(0.9)
        fast(x)
    assert len(graphs_of(fast)) == 1


def test_weights_that_keep_changing_are_not_folded_any_more():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad(), framejit.config.patch(recompile_limit=4):
        for change in range(8):
            assert_close(module, fast(x), x)
            assert folded_norms(fast) == [2 if change < 3 else 0]
            module[0].weight.mul_(0.9)
    assert len(recompiles()) == 3
    assert all(record.state == "compiled" for record in framejit.status().functions if record.graphs)


def test_gradients_are_not_lost():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        fast(x)
    loss = fast(x).square().mean()
    loss.backward()
    got = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    module(x).square().mean().backward()
    assert_same([p.grad for p in module.parameters()], got, atol=1e-4, rtol=1e-4)


def test_frozen_parameters_are_folded_with_grad_mode_on():
    module, x = network().requires_grad_(False), image()
    fast = framejit.optimize(module, freeze=True)
    assert_close(module, fast(x), x)
    assert folded_norms(fast) == [2]
    module[0].weight.requires_grad_(True)
    assert fast(x).requires_grad


def test_inference_mode_and_weights_made_in_it():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.inference_mode():
        assert torch.allclose(module(x), fast(x), atol=1e-4)
        module[0].weight.mul_(2)
        assert torch.allclose(module(x), fast(x), atol=1e-4)
        uncounted = framejit.optimize(made := network(), freeze=True)
        assert torch.allclose(made(x), uncounted(x), atol=1e-4)
        made[0].weight.mul_(2)
        assert torch.allclose(made(x), uncounted(x), atol=1e-4)
        assert folded_norms(uncounted) == [0]
    with torch.no_grad():
        assert torch.allclose(module(x), fast(x), atol=1e-4)


# ---- around it ------------------------------------------------------------------------------------


def test_nothing_is_folded_without_being_asked():
    module, x = network(), image()
    fast = framejit.optimize(module)
    with torch.no_grad():
        fast(x)
        module[0].weight.mul_(2)
        assert torch.allclose(module(x), fast(x), atol=1e-5)
    assert folded_norms(fast) == [0] and not recompiles()


def test_weights_that_nothing_was_folded_of_may_change():
    module, x = nn.Sequential(nn.Linear(8, 5), nn.ReLU()).eval(), torch.randn(2, 8)
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        fast(x)
        module[0].weight.mul_(2)
        assert torch.allclose(module(x), fast(x))
    assert not recompiles()


def test_two_models_share_a_function():
    one, two, x = network(), network(), image()

    @framejit.optimize(freeze=True)
    def run(model, x):
        return model(x)

    with torch.no_grad():
        for _ in range(2):
            for model in (one, two):
                assert_close(model, run(model, x), x)
        assert folded_norms(run) == [2, 2]
        one[0].weight.mul_(2)
        assert_close(one, run(one, x), x)
        assert_close(two, run(two, x), x)


def _tensors() -> set[int]:
    gc.collect()
    return {id(obj) for obj in gc.get_objects() if isinstance(obj, torch.Tensor) and not hasattr(obj, "fake_mode")}


def test_a_dropped_module_is_freed_with_what_was_computed_from_it():
    @framejit.optimize(freeze=True)
    def run(model, x):
        return model(x)

    x = image()
    model = network()
    with torch.no_grad():
        run(model, x)
    before = _tensors()
    weight, n_weights = weakref.ref(model[0].weight), len(model.state_dict())
    del model
    after = _tensors()
    assert weight() is None and graphs_of(run) == ()
    assert len(before - after) >= n_weights

    fast = framejit.optimize(network(), freeze=True)
    with torch.no_grad():
        fast(x)
    module = weakref.ref(fast[0])
    del fast
    gc.collect()
    assert module() is None


def test_threads_with_models_that_change():
    model, x = network(), image()
    fast = framejit.optimize(model, freeze=True)
    failures: list[object] = []

    def work(seed: int) -> None:
        own = copy.deepcopy(model)
        mine = framejit.optimize(own, freeze=True)
        try:
            with torch.no_grad():
                for _ in range(4):
                    failures.extend([] if torch.allclose(own(x), mine(x), atol=1e-4, rtol=1e-4) else [seed])
                    failures.extend([] if torch.allclose(model(x), fast(x), atol=1e-4, rtol=1e-4) else ["shared"])
                    own[0].weight.mul_(0.5)
        except Exception as e:
            failures.append(e)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


@pytest.mark.parametrize("norms_first", [False, True])
def test_symbolic_sizes(norms_first):
    module = network()
    fast = framejit.optimize(module, freeze=True, dynamic=True)
    with torch.no_grad():
        for size in (12, 14, 17, 12):
            x = torch.randn(2 + size % 3, 3, size, size)
            assert_close(module, fast(x), x)
        module[0 if norms_first else 4].weight.mul_(2)
        for size in (17, 12, 20, 20, 20):
            x = torch.randn(2 + size % 3, 3, size, size)
            assert_close(module, fast(x), x)
    assert all(norms == 2 for norms in folded_norms(fast))


def test_plans_of_folded_graphs_come_from_the_cache_with_other_weights():
    x = image()
    for _ in range(2):
        module = network()
        fast = framejit.optimize(module, freeze=True)
        with torch.no_grad():
            assert_close(module, fast(x), x)
        assert folded_norms(fast) == [2]
        framejit.reset()


def test_graph_breaks_in_between():
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = network(), trained(nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            framejit.graph_break()
            return self.second(x)

    module, x = Halves().eval(), image()
    fast = framejit.optimize(module, freeze=True)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        module.second[0].weight.mul_(3)
        assert_close(module, fast(x), x)
        (failure,) = recompiles()
        assert "second" in failure and "content was taken to stay" in failure


def test_verified_calls():
    module, x = network(), image()
    fast = framejit.optimize(module, freeze=True, verify=True)
    with torch.no_grad():
        assert_close(module, fast(x), x)
        module[0].weight.mul_(2)
        assert_close(module, fast(x), x)


def test_the_option_is_checked_and_carried():
    for wrong in (1, 0.5, "yes"):
        with pytest.raises(InvalidOption, match="freeze must be True, False or None"):
            framejit.optimize(network(), freeze=wrong)
    for wanted in (False, True):
        fast = framejit.optimize(network(), freeze=wanted)
        for made in (fast, copy.deepcopy(fast), copy.copy(fast), pickle.loads(pickle.dumps(fast))):
            assert made.__call__.__func__.options.freeze is wanted
        with framejit.config.patch(freeze=wanted):
            assert framejit.optimize(network()).__call__.__func__.options.freeze is wanted
            assert not framejit.optimize(network(), freeze=False).__call__.__func__.options.freeze


def test_the_command_line_takes_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import torch, framejit

            model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()

            def run(x):
                return model(x)

            with torch.no_grad():
                x = torch.randn(1, 3, 8, 8)
                before = run(x)
                model[0].weight.mul_(2)
                model[0].bias.mul_(2)
                folded = [graph.folded_norms for graph in framejit.inspect(run).graphs]
                print(torch.allclose(run(x), 2 * before, atol=1e-5), folded)
        """)
    )
    for options, norms in (([], "[0]"), (["--freeze"], "[1]")):
        done = forked.run(["-m", "framejit", "run", *options, script], timeout=100)
        assert done.stdout == f"True {norms}\n", done.stderr


def test_backends_without_a_use_for_it_say_so():
    module, x = network(), image()
    with pytest.warns(FramejitWarning, match="computes nothing from weights beforehand"):
        fast = framejit.optimize(module, backend="eager", freeze=True)
    with torch.no_grad():
        assert torch.equal(module(x), fast(x))
        module[0].weight.mul_(2)
        assert torch.equal(module(x), fast(x))
    assert not recompiles()
