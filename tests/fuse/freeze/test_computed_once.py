"""`optimize(freeze=True)`: what depends on weights alone is computed once, and nothing else is."""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn

import framejit
from tests.fuse.freeze.networks import assert_close, folded_norms, graphs_of, image, network, recompiles

from comparison import assert_same


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
