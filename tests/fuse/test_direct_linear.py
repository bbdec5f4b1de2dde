"""With frozen weights on CPUs, linear layers are kernels of ours, with what is done to their results behind them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from framejit.backends.fuse.llvm.machine import machine
from framejit.backends.fuse.llvm.products import convolution_tile

pytestmark = pytest.mark.skipif(
    not convolution_tile.channel_block(48), reason="linear layers are a library's on this processor"
)

PRODUCTS = ("linear", "addmm", "mm", "matmul", "_mkl_linear", "bmm")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


def frozen(module: nn.Module) -> Callable[..., torch.Tensor]:
    return framejit.optimize(module.eval(), fullgraph=True, freeze=True)


def linears(fast: object) -> list[str]:
    """What linear layers of ours do besides, without the numbers of kernels."""
    found = (kernel.name for graph in framejit.inspect(fast).graphs for kernel in graph.kernels)
    return [name.rpartition("_")[0].removeprefix("linear").strip("_") for name in found if name.startswith("linear")]


def library_products(fast: object) -> list[str]:
    names = (name.partition(".")[0] for graph in framejit.inspect(fast).graphs for name in graph.externs)
    return [name for name in names if name in PRODUCTS]


def assert_right(module: nn.Module, fast: Callable[..., torch.Tensor], x: torch.Tensor) -> None:
    """That a result lies as eager's does, is as exact, and holds what is no number where eager's does."""
    own, theirs = x.clone(), x.clone()
    with torch.no_grad():
        got, expected = fast(own), module(theirs)
        exact = copy.deepcopy(module).double()(x.double())
    assert torch.equal(own.nan_to_num(), theirs.nan_to_num())
    assert (got.shape, got.stride(), got.dtype) == (expected.shape, expected.stride(), expected.dtype)
    # where ATen's vectors and its scalars differ (gelu of infinity, with AVX-512), as in double precision will do
    assert (_same_kind(got, expected) | _same_kind(got, exact)).all()
    finite = exact.isfinite() & expected.isfinite()
    if finite.any():
        error, eagers = (float((each.double() - exact)[finite].abs().mean()) for each in (got, expected))
        assert error <= 2 * eagers + 1e-7 * float(exact[finite].abs().mean()), (error, eagers)


def _same_kind(got, expected):
    """Where both are numbers, or no number, or the same infinity."""
    return (got.isfinite() & expected.isfinite()) | (got.isnan() & expected.isnan()) | (got == expected)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 31, 64, 200])
@pytest.mark.parametrize(
    "features",
    [(1, 8), (7, 16), (64, 24), (160, 448), (257, 40), (333, 1000), (769, 48), (1021, 16), (2053, 24)],
)
def test_sizes(rows, features):
    module = nn.Linear(*features)
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(rows, features[0]))
    assert linears(fast) == [""] and not library_products(fast)


class Matrices(nn.Module):
    """Products with matrices that are no `nn.Linear`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(64, 96)), nn.Parameter(torch.randn(96))
        self.other = nn.Parameter(torch.randn(48, 96))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.addmm(self.bias, x, self.weight).relu() + x @ self.weight + torch.mm(x, self.weight)
        return y @ self.other.T + F.linear(y, self.other)


def test_products_with_matrices():
    module = Matrices()
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(10, 64))
    assert len(linears(fast)) == 5 and not library_products(fast)
    with torch.no_grad():
        module.weight.mul_(-2)
    assert_right(module, fast, torch.randn(10, 64))
    module.other = nn.Parameter(torch.randn(48, 96))
    assert_right(module, fast, torch.randn(10, 64))


class Scaled(nn.Module):
    """Products that are no linear layers."""

    def __init__(self, f: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.bias, self.f = nn.Parameter(torch.randn(64, 64)), nn.Parameter(torch.randn(64, 64)), f

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x, self.weight, self.bias)


NOT_OURS: dict[str, Callable[..., torch.Tensor]] = {
    "a bias of rows": lambda x, weight, bias: torch.addmm(bias, x, weight),
    "a bias of one": lambda x, weight, bias: torch.addmm(bias[0, :1], x, weight),
    "scaled": lambda x, weight, bias: torch.addmm(bias[0], x, weight, beta=2, alpha=3),
    "the weight before": lambda x, weight, bias: weight @ x,
    "both from outside": lambda x, weight, bias: x @ x,
    "a vector of weights": lambda x, weight, bias: x @ bias[0],
    "in pieces": lambda x, weight, bias: x.view(4, 16, 64) @ weight.view(4, 16, 64).transpose(1, 2),
}


@pytest.mark.parametrize("name", NOT_OURS)
def test_products_that_are_others(name):
    module = Scaled(NOT_OURS[name])
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(64, 64))


class Behind(nn.Module):
    """A layer with what `f` makes of its argument and result."""

    def __init__(self, f: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.f = nn.Linear(32, 32), nn.Linear(32, 32), f

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x, self.first(x), self.second(x))


def overwritten(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    x.add_(one)
    return x.relu() + other


def read_before(x: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    top = one.amax(1, keepdim=True)
    one.mul_(2).add_(other)
    return one - top


TOGETHER: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    # what is made of two layers' results, and how many of these do something besides
    "gelu": (lambda x, one, other: F.gelu(one) * 2, 1),
    "silu of one times the other": (lambda x, one, other: F.silu(one) * other, 1),
    "residual": (lambda x, one, other: x + one.tanh(), 1),
    "in place": (lambda x, one, other: one.relu_().add_(x), 1),
    "into the other": (lambda x, one, other: one.add_(other).relu_(), 1),
    "the argument overwritten": (overwritten, 0),
    "used twice": (lambda x, one, other: (one + 1).relu() + one.flip(1) + other.amax(), 0),
    "a norm": (lambda x, one, other: F.layer_norm(x + one, (32,)), 0),
    "a softmax": (lambda x, one, other: one.softmax(-1), 0),
    "turned around": (lambda x, one, other: one.flip(0) + other.roll(1, 1), 0),
    "halves": (lambda x, one, other: one[..., :16].relu() + other[..., 16:], 0),
    "joined": (lambda x, one, other: torch.cat([one.relu(), other.relu()], 1), 0),
    "of a row": (lambda x, one, other: one * other.mean(-1, keepdim=True), 0),
    "read before": (read_before, 0),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_which_kernels_linear_layers_take_along(name):
    f, _ = TOGETHER[name]
    module = Behind(f)
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(12, 32))
    if TOGETHER[name][1]:
        assert sum(map(bool, linears(fast))) == TOGETHER[name][1]
    assert not library_products(fast)


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf"), -float("inf"), 1e38])
@pytest.mark.parametrize("f", [F.relu, F.gelu, F.hardtanh, F.silu])
def test_what_is_no_number(value, f):
    module = Behind(lambda x, one, other: f(one) + other)
    fast = frozen(module)
    x = torch.randn(9, 32)
    x.view(-1)[::97] = value
    for _ in range(2):
        assert_right(module, fast, x)


def test_arguments_that_are_views():
    module = nn.Linear(32, 48)
    fast = frozen(module)
    x = torch.randn(4, 6, 64)
    for view in (
        x[..., 32:], x[..., ::2], x[0, :, :32], x[:, 0, :32], x.view(4, 12, 32), x.view(-1, 32)[3:9],
        x[:, :, :32].transpose(0, 1), x.view(4, 6, 2, 32).transpose(1, 2), x[:1, :, :32].expand(5, 6, 32),
        torch.randn(32, 9).t(), x[0, 0, :32],
    ):
        with torch.no_grad():
            for _ in range(2):
                torch.testing.assert_close(fast(view), module(view))


class Heads(nn.Module):
    """Attention, whose results are put in rows again."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.out = (nn.Linear(64, 64) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key = (layer(x).view(2, 8, 4, 16).transpose(1, 2) for layer in (self.query, self.key))
        rows = F.scaled_dot_product_attention(query, key, key).transpose(1, 2).reshape(2, 8, 64)
        return x + F.gelu(self.out(rows))


def test_attention():
    module = Heads()
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(2, 8, 64))
    assert len(linears(fast)) == 3 and not library_products(fast)


def test_a_layer_that_is_used_twice_is_laid_out_once():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(self.layer(x).relu()) + self.layer(x[:1])

    module = Twice()
    fast = frozen(module)
    for _ in range(2):
        assert_right(module, fast, torch.randn(12, 64))
    assert len(linears(fast)) == 3


def test_results_that_are_returned_too():
    class Two(Behind):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.first(x)
            return y, y.relu()

    module, x = Two(F.relu), torch.randn(5, 32)
    fast = frozen(module)
    with torch.no_grad():
        for _ in range(2):
            for got, expected in zip(fast(x), module(x), strict=True):
                torch.testing.assert_close(got, expected)


def test_with_gradients_a_layer_is_eager_s():
    """Weights that gradients are wanted for are not frozen."""
    module, x = Behind(lambda x, one, other: F.gelu(one) + other), torch.randn(5, 32, requires_grad=True)
    fast, other = frozen(module), x.detach().clone().requires_grad_()
    with torch.no_grad():
        assert_right(module, fast, x.detach())
    for _ in range(2):
        fast(x).sum().backward()
        mine = [parameter.grad.clone() for parameter in module.parameters()]
        module.zero_grad()
        module(other).sum().backward()
        torch.testing.assert_close([x.grad, *mine], [other.grad, *(each.grad for each in module.parameters())])
        module.zero_grad()


def test_views_made_under_no_grad_do_not_want_gradients():
    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(48, 32))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.t()

    module = Turned()
    fast = frozen(module)
    assert_right(module, fast, torch.randn(6, 32))
    assert linears(fast) == [""]
    x = torch.randn(6, 32)
    fast(x).sum().backward()  # another entry, with gradients
    torch.testing.assert_close(module.weight.grad, x.sum(0).expand(48, 32))


def test_threads_give_the_same():
    module, x = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)), torch.randn(300, 256)
    before = torch.get_num_threads()
    results = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            with torch.no_grad():
                results.append(frozen(module)(x))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_plans_from_the_disk_have_the_weights_at_hand():
    x = torch.randn(6, 32)
    for _ in range(2):
        module = Behind(lambda x, one, other: F.gelu(one) + other)
        fast = frozen(module)
        assert_right(module, fast, x)
        with torch.no_grad():
            module.first.weight.mul_(-3)
        assert_right(module, fast, x)


@pytest.mark.parametrize("host", [(64, True), (32, False)])
@pytest.mark.parametrize("features", [(64, 24), (160, 448), (333, 1000)])
def test_vectors_of_other_processors(monkeypatch, features, host):
    """The compiler makes of wide vectors what this processor has."""
    width, is_avx512 = host
    monkeypatch.setattr(
        convolution_tile, "machine", lambda: replace(machine(), vector_bytes=width, is_avx512=is_avx512)
    )
    module = nn.Linear(*features)
    fast = frozen(module)
    for rows in (1, 9, 40):
        assert_right(module, fast, torch.randn(rows, features[0]))
    assert set(linears(fast)) == {""}


def test_where_tiles_are_not_quick_it_is_the_library_s(monkeypatch):
    """Processors with vectors of 16 bytes, and sizes that no block divides."""
    module = nn.Linear(160, 1001)
    fast = frozen(module)
    assert_right(module, fast, torch.randn(8, 160))
    assert not linears(fast) and library_products(fast)
    monkeypatch.setattr(convolution_tile, "machine", lambda: replace(machine(), vector_bytes=16))
    module = nn.Linear(160, 448)
    fast = frozen(module)
    assert_right(module, fast, torch.randn(8, 160))
    assert not linears(fast) and library_products(fast)
