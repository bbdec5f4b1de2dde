"""Random networks are compared with eager: results, gradients, and which errors they raise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit
from tests.training.random_networks import Network

CLOSE = {torch.float64: 1e-7, torch.float32: 5e-3}


def outcome(
    fn: Any, network: Network, number: int, more: int, wants_gradients: bool
) -> list[torch.Tensor | None] | str:
    x, parameters = network.input(number, more), network.own_parameters()
    torch.manual_seed(number)
    try:
        with torch.set_grad_enabled(wants_gradients):
            loss = fn(x, parameters)
        if loss.requires_grad:
            loss.backward()
    except (RuntimeError, IndexError, ValueError) as e:
        return f"{type(e).__name__}: {e}"
    return [loss.detach(), x.grad, *(parameter.grad for parameter in parameters)]


def check(seed: int, dtype: torch.dtype, dynamic: bool) -> None:
    network = Network(seed, dtype)
    compiled = framejit.optimize(network.function, backend="fuse", dynamic=dynamic or None)
    for number in range(3 if dynamic else 2):
        more = 2 * number if dynamic else 0
        for wants_gradients in (True, False):
            theirs = outcome(network.function, network, number, more, wants_gradients)
            mine = outcome(compiled, network, number, more, wants_gradients)
            if isinstance(theirs, str) or isinstance(mine, str):
                assert mine == theirs, network.source
                continue
            for one, other in zip(mine, theirs):
                assert (one is None) == (other is None), network.source
                if one is not None and other is not None:
                    assert one.stride() == other.stride(), network.source
                    scale = other.abs().max().clamp(min=1)
                    difference = ((one - other).abs() / scale).max() if one.numel() else torch.zeros(())
                    assert difference <= CLOSE[dtype] or difference.isnan(), (float(difference), network.source)


@pytest.mark.parametrize("seed", range(40))
def test_random_network(seed: int) -> None:
    check(seed, torch.float64, dynamic=False)


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_random_network_with_sizes_left_open(seed: int) -> None:
    check(seed, torch.float64, dynamic=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(2000, 3000, 20))
def test_more_random_networks(first: int) -> None:
    for seed in range(first, first + 20):
        check(seed, torch.float64 if seed % 4 else torch.float32, dynamic=seed % 2 == 0)


JUMPS = (
    "dropout", "rand_like", "sort(", "topk", "median", "arg", "fmod", "remainder", "floor", "max(", "amax", "prod",
    "logit", "sinc", "atan2", "sign(", "threshold", "shrink", "masked_fill", "clamp(max",
)
"""In the names of functions whose results, or gradients, a rounding may change at will, and of those that draw."""


def rounded(fn: Any, network: Network, kind: torch.dtype, is_exact: bool) -> list[torch.Tensor | None]:
    """What a network gives with the numbers of a kind, in that kind or in double precision."""
    made = [network.input(0), *network.own_parameters()]
    x, *parameters = [
        each.detach().to(kind).to(torch.float64 if is_exact else kind).requires_grad_() for each in made
    ]
    loss = fn(x, parameters)
    if loss.requires_grad:
        loss.backward()
    return [each if each is None else each.double() for each in (loss.detach(), x.grad, *(p.grad for p in parameters))]


def check_rounding(seed: int, kind: torch.dtype) -> None:
    network = Network(seed)
    if any(name in network.source for name in JUMPS):
        return
    half = network.with_dtype(kind)
    try:
        theirs = rounded(half, network, kind, is_exact=False)
    except RuntimeError:  # of which ATen has none
        return
    exact = rounded(network.function, network, kind, is_exact=True)
    mine = rounded(framejit.optimize(half, backend="fuse"), network, kind, is_exact=False)
    for one, other, wanted in zip(mine, theirs, exact):
        assert (one is None) == (other is None), network.source
        if one is not None and other is not None and wanted is not None and wanted.isfinite().all():
            scale = wanted.abs().max().clamp(min=0.1)  # what is left of larger numbers is as far off as these are
            ours, eager = (float(((each - wanted).abs() / scale).max()) for each in (one, other))
            assert not ours > 4 * eager + 8 * torch.finfo(kind).eps, (ours, eager, network.source)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("first", range(0, 120, 30))
def test_random_networks_in_half_precision(first: int, kind: torch.dtype) -> None:
    for seed in range(first, first + 30):
        check_rounding(seed, kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
@pytest.mark.parametrize("first", range(4000, 5000, 50))
def test_more_networks_in_half_precision(first: int, kind: torch.dtype) -> None:
    for seed in range(first, first + 50):
        check_rounding(seed, kind)
