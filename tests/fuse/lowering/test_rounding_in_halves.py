"""Where a result may jump, fused operations on bfloat16 and float16 see what eager's see: values that have been rounded
to the dtype, not those of float32 that a kernel still has in its registers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit
from tests.fuse.lowering.plan_checks import check

JUMPING = {
    "equal": lambda x, y: (x * y) == (x * y).amax(1, keepdim=True),
    "less": lambda x, y: (x + y) < (x * 1.5),
    "floor": lambda x, y: (x * y).floor(),
    "to_int": lambda x, y: (x * y).int(),
    "to_double": lambda x, y: (x * y).double() + 1,
    "amax_to_double": lambda x, y: (x * y).amax(1).double(),
    "to_bool": lambda x, y: (x * 1e-9).bool(),
    "remainder": lambda x, y: torch.remainder(x * y, 0.1),
    "sign": lambda x, y: (x * 1e-9).sign() + y,
    "isinf": lambda x, y: (x * 1e38).isinf() | (x * 60000).isinf(),
    "argmax": lambda x, y: (x * y).argmax(1),
    "any": lambda x, y: (x * 1e-42).any(1),
    "all": lambda x, y: (y * 1e-5).all(1),
    "cummax": lambda x, y: (x * y).cummax(1),
    "max_pool": lambda x, y: F.max_pool2d((x * y)[None], 2, return_indices=True),
    "write_double": lambda x, y: torch.zeros(x.shape, dtype=torch.float64).copy_(x * y),
    "write": lambda x, y: torch.zeros(x.shape, dtype=torch.int32).copy_(x * y),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", JUMPING)
def test_what_may_jump_sees_rounded_values(name, dtype):
    x, y = (torch.randn(64, 50) * 40).to(dtype), torch.randn(64, 50).to(dtype)
    check(JUMPING[name], x, y, atol=0, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("read", [
    lambda x: x.item(), lambda x: float(x), lambda x: x.item() * 3, lambda x: (x, x.item()), lambda x: int(x * 64),
    lambda x: x.tolist(),
])
def test_numbers_that_are_read_are_those_of_the_dtype(read, dtype):
    def function(x, y):
        return read((x * y).amax())

    fast = framejit.optimize(function, backend="fuse")
    for _ in range(4):
        x, y = (torch.randn(64, 50) * 40).to(dtype), torch.randn(64, 50).to(dtype)
        assert fast(x, y) == function(x, y)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [
    lambda x, y: (x * y).amax(), lambda x, y: (x * y).amax(1), lambda x, y: (x * y).max(), lambda x, y: (x * y).amin(0),
])
def test_gradients_go_to_the_greatest(function, dtype):
    for size in ((1, 1), (64, 50)):
        x, y = torch.randn(size).to(dtype).requires_grad_(), torch.randn(size).to(dtype)
        fast = framejit.optimize(function)
        for _ in range(3):
            found, expected = (torch.autograd.grad(f(x, y).sum(), x)[0] for f in (fast, function))
            assert torch.equal(found != 0, expected != 0)
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", [
    lambda x: x.exp().sin().amin(1), lambda x: (x.exp() + 2).amax(1), lambda x: (x.tanh() * 3).amax(),
    lambda x: x.sigmoid().T.sin().max(0).values, lambda x: (x.cumsum(0).exp() * 1.3 + x).amin((0, 1)),
])
def test_gradients_that_compare_what_is_computed_anew_from_results(function, dtype):
    fast = framejit.optimize(function, backend="fuse")
    for _ in range(20):
        x = torch.randn(3, 5).to(dtype).requires_grad_()
        found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (fast, function))
        assert torch.equal(found != 0, expected != 0)
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_what_another_graph_computes_anew(dtype):
    def function(x):
        y = x.exp()
        greatest = (y.sin() * 1.7).amax(1, keepdim=True)
        framejit.graph_break()
        return (y.sin() * 1.7) == greatest

    for _ in range(10):
        framejit.reset()  # before either graph was measured, and is run as ATen, whose sine has other last bits
        fast = framejit.optimize(function, backend="fuse")
        for _ in range(3):
            x = torch.randn(6, 40, requires_grad=True).to(dtype)
            assert fast(x).any(1).all()


def scaled(x):
    return x * x.mean(0, keepdim=True)


CHAINS = {
    "mean": lambda x: scaled(F.softplus(x)).amax(1), "norm": lambda x: F.normalize(F.softplus(x), dim=-1).amin(0),
    "means": lambda x: scaled(F.mish(scaled(F.log_softmax(x, 1)))).amax(1),
    "layer_norm": lambda x: F.layer_norm(x.abs().add(0.5).sqrt().sin(), x.shape[-1:]).amax(),
    "infinity_norm": lambda x: (scaled(F.gelu(x)) * 1.37).norm(float("inf"), dim=1),
    "max_and_min": lambda x: (y := F.softplus(scaled(F.mish(x)) * 1.1)).max() - y.min(),
    "used_besides": lambda x: (y := F.normalize(F.gelu(x.sigmoid()), dim=-1)).amax(1, keepdim=True) * y,
    "transposed": lambda x: scaled(F.mish(x.sigmoid())).t().amax(0),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CHAINS)
def test_gradients_of_the_greatest_behind_reductions(name, dtype):
    function = CHAINS[name]
    for shape in ((17, 52), (4, 68), (23, 34)):
        fast = framejit.optimize(function, backend="fuse")
        for _ in range(4):
            x = torch.randn(shape).to(dtype).requires_grad_()
            found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (fast, function))
            assert found.isfinite().all() and expected.isfinite().all()
            # of elements that are nearly equal another may be the greatest
            assert 0.3 < found.double().norm() / expected.double().norm() < 3


def looked_for(y, used):
    """Where the greatest of each row of 1.37 * y is; `used` needs y in memory between the two looks at it."""
    larger = y * 1.37
    greatest = larger.amax(1, keepdim=True)
    product = used(y)
    return larger == greatest, larger.abs() >= greatest, larger < greatest, product


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("used", [lambda y: y @ torch.ones(68, 3, dtype=y.dtype), lambda y: y.sort(1)[0]])
@pytest.mark.parametrize("name", ["exp", "sigmoid", "tanh"])
def test_the_greatest_is_one_of_those_it_was_found_in(name, used, dtype):
    def function(x):
        return looked_for(getattr(x.abs(), name)(), used)

    fast = framejit.optimize(function, backend="fuse")
    for _ in range(4):
        equal, not_less, less, _ = fast(torch.randn(20, 68).to(dtype))
        assert equal.any(1).all() and torch.equal(equal, not_less) and torch.equal(equal, ~less)
