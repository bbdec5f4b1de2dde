"""`optimize(freeze=True)`: every change of a weight that torch counts is noticed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune

import framejit
from framejit import events
from tests.fuse.freeze.networks import assert_close, folded_norms, graphs_of, image, network, recompiles, trained


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
