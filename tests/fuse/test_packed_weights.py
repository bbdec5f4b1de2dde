"""With frozen weights on CPUs, convolutions and linear layers take weights that were laid out once for the library."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

PACKED = {"_convolution_pointwise.default", "_mkl_linear.default"}

pytestmark = pytest.mark.skipif(
    not (torch._C._has_mkldnn and torch._C.has_mkl), reason="this torch was built without oneDNN or MKL"
)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache")):
        yield


class Block(nn.Module):
    """Of a residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(32, 32, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.other = nn.BatchNorm2d(32), nn.BatchNorm2d(32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.other(self.second(F.relu(self.norm(self.first(x))))))


class Shared(nn.Module):
    """One convolution for two images of different sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Conv2d(32, 32, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.part(x), self.part(F.max_pool2d(x, 2)).relu()


class Flat(nn.Module):
    """A classifier, with what depends on how its images lie."""

    def __init__(self) -> None:
        super().__init__()
        self.part, self.norm, self.last = nn.Conv2d(16, 32, 3), nn.BatchNorm2d(32), nn.Linear(32 * 12 * 12, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.norm(self.part(x))
        return self.last(torch.flatten(y, 1)), y.permute(0, 2, 3, 1).sum(-1), (y[:, 1:3, ::2] + 1).view(8, 2, -1)


class Returned(Flat):
    """Views of the result of a convolution are returned."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.part(x)
        flat = torch.flatten(y, 1)
        return flat, y.permute(0, 2, 3, 1), y[:, 1:3, ::2], flat[0]


class Written(nn.Module):
    """The result of a convolution is written into, and so is its input afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Conv2d(32, 32, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.part(x)
        y[:, ::2].mul_(2)
        x.add_(1)
        return y, self.part(x)


IMAGE, ROWS = (2, 32, 14, 14), (8, 160)
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    # what is made, the input's sizes, how many operations have packed weights
    "convolution": (lambda: nn.Conv2d(32, 48, 3), IMAGE, 1),
    "without bias": (lambda: nn.Conv2d(32, 48, 3, bias=False), IMAGE, 1),
    "stride, padding, dilation": (lambda: nn.Conv2d(32, 48, (3, 5), (2, 1), (3, 1), (1, 2)), IMAGE, 1),
    "one by one": (lambda: nn.Conv2d(32, 96, 1), IMAGE, 1),
    "groups": (lambda: nn.Conv2d(32, 64, 3, groups=4), IMAGE, 1),
    "depthwise": (lambda: nn.Sequential(nn.Conv2d(32, 32, 5, groups=32), nn.ReLU6()), (2, 32, 28, 28), 1),
    "one image": (lambda: nn.Conv2d(64, 64, 3), (1, 64, 16, 16), 1),
    "one place": (lambda: nn.Conv2d(512, 64, 4), (4, 512, 4, 4), 1),
    "residual block": (Block, IMAGE, 2),
    "shared": (Shared, (2, 32, 20, 20), 2),
    "flattened": (Flat, (8, 16, 14, 14), 1),
    "views returned": (Returned, (8, 16, 14, 14), 0),
    "written into": (Written, IMAGE, 2),
    "linear": (lambda: nn.Sequential(nn.Linear(160, 448), nn.GELU(), nn.Linear(448, 10)), ROWS, 2),
    "linear without bias": (lambda: nn.Linear(160, 448, bias=False), ROWS, 1),
    "linear of sequences": (lambda: nn.Linear(160, 448), (2, 3, 160), 1),
    "few columns": (lambda: nn.Linear(160, 24), ROWS, 1),
    "few rows": (lambda: nn.Linear(160, 448), (3, 160), 1),
    "a vector": (lambda: nn.Linear(160, 448), (160,), 1),
    "few products": (lambda: nn.Conv2d(8, 8, 3), (1, 8, 8, 8), 0),
    "no images": (lambda: nn.Conv2d(32, 48, 3), (0, 32, 14, 14), 0),
    "an image alone": (lambda: nn.Conv2d(32, 48, 3), (32, 64, 64), 0),
    "transposed": (lambda: nn.ConvTranspose2d(32, 48, 3), IMAGE, 0),
}


def trained(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.running_mean.normal_()
            part.running_var.uniform_(0.3, 2)
    return module.eval()


def packed(fast: object) -> int:
    """How many operations of all graphs take packed weights: the libraries', and those of ours."""
    return sum(name in PACKED for graph in framejit.inspect(fast).graphs for name in graph.externs) + len(direct(fast))


def direct(fast: object) -> list[str]:
    """The names of the convolutions and linear layers of ours, with those of what they do along."""
    kernels = (kernel.name for graph in framejit.inspect(fast).graphs for kernel in graph.kernels)
    return [name for name in kernels if name.startswith(("convolution_", "linear_"))]


def several(result: torch.Tensor | tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def assert_close(module: nn.Module, fast: Callable[..., object], x: torch.Tensor) -> None:
    """That results lie as eager's do and are as near to the exact ones, and that the argument is what it is then."""
    own, theirs, exact = x.clone(), x.clone(), x.double()
    with torch.no_grad():
        got, expected = several(fast(own)), several(module(theirs))
        wanted = several(copy.deepcopy(module).double()(exact))
    torch.testing.assert_close(own, theirs, rtol=0, atol=0, equal_nan=True)
    for one, other, true in zip(got, expected, wanted, strict=True):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert torch.equal(one.isnan(), other.isnan()) and torch.equal(one.isinf(), other.isinf())
        finite = true.isfinite()
        error, eagers = (float((each.double() - true)[finite].abs().sum()) for each in (one, other))
        assert error <= 4 * eagers + 1e-6 * float(true[finite].abs().sum()), (error, eagers)


@pytest.mark.parametrize("name", CASES)
def test_results_are_eager_s(name):
    make, sizes, number = CASES[name]
    module = trained(make())
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    for _ in range(2):
        assert_close(module, fast, torch.randn(sizes))
    assert packed(fast) == number


@pytest.mark.parametrize("name", ["convolution", "residual block", "shared", "flattened"])
def test_images_that_lie_otherwise(name):
    make, sizes, number = CASES[name]
    module = trained(make())
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    x = torch.randn(*sizes[:3], 2 * sizes[3])
    for given in (x[..., ::2], x[..., 1::2].to(memory_format=torch.channels_last), x[..., ::2].contiguous()):
        with torch.no_grad():
            for one, other in zip(several(fast(given)), several(module(given)), strict=True):
                assert one.stride() == other.stride()
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e38])
@pytest.mark.parametrize("name", ["residual block", "depthwise", "linear"])
def test_numbers_that_are_none_stay_so(name, value):
    make, sizes, _ = CASES[name]
    module = trained(make())
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    x = torch.randn(sizes)
    x.view(-1)[::1001] = value
    assert_close(module, fast, x)


@pytest.mark.parametrize("name", ["convolution", "residual block", "linear"])
def test_changed_weights_are_noticed(name):
    make, sizes, number = CASES[name]
    module, x = trained(make()), torch.randn(sizes)
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    assert_close(module, fast, x)
    with torch.no_grad():
        next(module.parameters()).mul_(-2)
    assert_close(module, fast, x)
    for part in module.modules():
        if isinstance(part, (nn.Conv2d, nn.Linear)):
            part.weight = nn.Parameter(torch.randn_like(part.weight))
    assert_close(module, fast, x)
    assert packed(fast) >= number


def test_only_what_is_frozen_is_packed():
    module, x = trained(Block()), torch.randn(IMAGE)
    fast = framejit.optimize(module, fullgraph=True)
    assert_close(module, fast, x)
    assert packed(fast) == 0
    double = trained(Block()).double()
    fast = framejit.optimize(double, fullgraph=True, freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(fast(x.double()), double(x.double()))
    assert packed(fast) == 0


def test_sizes_that_are_left_open():
    module = trained(Block())
    fast = framejit.optimize(module, fullgraph=True, freeze=True, dynamic=True)
    for size in (14, 17, 14):
        assert_close(module, fast, torch.randn(2, 32, size, size))
    assert packed(fast) == 0


def test_switched_off():
    module, x = trained(Block()), torch.randn(IMAGE)
    with framejit.config.patch(passes_off="pack_weights"):
        fast = framejit.optimize(module, fullgraph=True, freeze=True)
        assert_close(module, fast, x)
        assert packed(fast) == 0


def test_under_autocast():
    module, x = trained(Block()), torch.randn(IMAGE)
    fast = framejit.optimize(module, fullgraph=True, freeze=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = module(x)
        for _ in range(2):
            result = fast(x)
            assert result.dtype == expected.dtype and result.stride() == expected.stride()
            torch.testing.assert_close(result, expected, rtol=0.05, atol=0.05)
