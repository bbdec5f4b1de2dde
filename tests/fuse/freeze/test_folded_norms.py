"""`optimize(freeze=True)`: batch norms go into the weights before them, where results stay eager's."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import framejit
from framejit import events
from framejit.backends.fuse.graph.passes import fold_norms
from tests.fuse.freeze.networks import assert_close, folded_norms, graphs_of, image, network, recompiles, trained

from comparison import assert_same


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
