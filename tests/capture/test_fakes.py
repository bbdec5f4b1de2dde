"""What capture knows of results, compared with what the kernels make: strides of all dimensions, and dtypes under other
default dtypes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from framejit.fakes.fake_mode import Fakes

BINARY = (
    torch.add, torch.sub, torch.rsub, torch.atan2, torch.logical_and, torch.logical_xor, torch.copysign, torch.lt,
    torch.maximum, torch.pow, torch.xlogy,
    torch.floor_divide, torch.heaviside, torch.logaddexp, torch.remainder, torch.true_divide, torch.polar,
    lambda x, y: torch.where(x > 0, x, y), lambda x, y: torch.lerp(x, y, 0.5), lambda x, y: torch.addcmul(x, x, y),
)
UNARY = (
    torch.neg, torch.sin, torch.deg2rad, torch.relu, torch.isfinite, torch.nan_to_num, torch.clone, torch.logical_not,
    torch.isnan, torch.empty_like,
    torch.square, torch.abs, torch.frexp, F.gelu, F.relu6, F.hardswish, F.hardtanh,
    lambda x: x + 2, lambda x: 2 - x, lambda x: 2**x, lambda x: x**2, lambda x: x**2.5, lambda x: x == 1,
    lambda x: x.clamp(min=0), lambda x: 2 / x,
    lambda x: x.masked_fill(x > 0, 1), lambda x: torch.where(x > 0, x, 1.0), lambda x: x.double(),
    lambda x: x.to(torch.int32), lambda x: x // 2,
    lambda x: torch.polygamma(2, x), lambda x: x.softmax(-1), lambda x: x.flip(0), lambda x: x.sort(-1),
    lambda x: x.cumsum(0), lambda x: x.sum(-1),
    lambda x: x.mean(0, keepdim=True), lambda x: x.amax(0), torch.poisson, F.logsigmoid,
    lambda x: F.rrelu(x, training=True), lambda x: torch.isin(x, 1.0), lambda x: torch.isin(x, torch.ones(2)),
    lambda x: F.binary_cross_entropy(x, torch.zeros(x.shape), reduction="none"),
)
IMAGES = (
    lambda x: F.group_norm(x, 1), lambda x: x.roll(1, 1), lambda x: x.roll((1, 0), (1, 2)), lambda x: x.roll(3),
    lambda x: x.roll((1, 1), (2, 3)), lambda x: F.glu(x, 1), lambda x: F.prelu(x, torch.ones(x.shape[1])),
    lambda x: F.interpolate(x, scale_factor=2), lambda x: F.interpolate(x, size=5, mode="bilinear"),
    lambda x: F.interpolate(x, size=5, mode="bicubic"), lambda x: F.interpolate(x[None], scale_factor=2),
    lambda x: F.interpolate(x, size=5, mode="bilinear", antialias=True), lambda x: F.channel_shuffle(x, 2),
    lambda x: F.interpolate(x, size=5, mode="nearest-exact"), lambda x: F.pixel_unshuffle(x, 2),
    lambda x: F.batch_norm(x, None, None, training=True),
    lambda x: F.batch_norm(x, torch.zeros(x.shape[1]), torch.ones(x.shape[1])),
    lambda x: F.pad(x, (1, 1, 1, 1), "replicate"), lambda x: F.pad(x, (0, 1, 0, 1), "reflect"),
    lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 3, 2, 2).mT, align_corners=False),
)
SHAPES = (
    (1, 2, 4, 4), (2, 1, 4, 4), (1, 2, 1, 4), (2, 2, 1, 1), (1, 2, 4, 1), (3, 4, 4, 4), (1, 1, 1, 1), (2, 4, 2, 6),
)


def laid_out(rnd: random.Random, shape: list[int]) -> torch.Tensor:
    """A tensor of this shape with its dimensions in some order, perhaps with gaps, perhaps repeated along one."""
    order = rnd.sample(range(len(shape)), len(shape))
    made = torch.ones([shape[dim] * rnd.choice((1, 1, 1, 2)) for dim in order])
    made = made[
        tuple(
            slice(None, None, 2) if rnd.random() < 0.5 and made.shape[i] > shape[dim] else slice(0, shape[dim])
            for i, dim in enumerate(order)
        )
    ]
    made = made.permute([order.index(dim) for dim in range(len(shape))])
    if shape and rnd.random() < 0.2:
        dim = rnd.randrange(len(shape))
        made = made.narrow(dim, 0, min(1, made.shape[dim])).expand(shape)
    return made.to(rnd.choice((torch.float64, torch.int64))) if rnd.random() < 0.2 else made


def operands(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    rnd = random.Random(seed)
    for _ in range(60):
        shape = [rnd.choice((0, 1, 2, 3) if rnd.random() < 0.2 else (1, 2, 3, 5)) for _ in range(rnd.randrange(5))]

        def broadcast(shape: list[int] = shape) -> list[int]:
            own = [1 if rnd.random() < 0.3 else size for size in shape]
            return own[rnd.randrange(len(shape) + 1) if rnd.random() < 0.3 else 0 :]

        yield laid_out(rnd, shape if rnd.random() < 0.5 else broadcast()), laid_out(rnd, broadcast())


def layouts(function: Callable[..., Any], *args: torch.Tensor) -> list[Any] | None:
    try:
        result = function(*args)
    except Exception:
        return None
    return [(tuple(x.shape), x.stride(), x.dtype) for x in (result if isinstance(result, tuple) else (result,))]


def check(functions: Any, *args: torch.Tensor) -> None:
    mode = Fakes(allow_fallback_kernels=False)
    fakes = [mode.from_tensor(arg, static_shapes=True) for arg in args]
    for position, function in enumerate(functions):
        expected = layouts(function, *args)
        if expected is not None:
            with mode:
                assert layouts(function, *fakes) == expected, (
                    position, function, [(x.shape, x.stride(), x.dtype) for x in args],
                )


@pytest.mark.parametrize("seed", range(6))
def test_fakes_lie_as_the_kernels_results_do(seed: int) -> None:
    for a, b in operands(seed):
        check(BINARY, a, b)
        check(UNARY, a)


VOLUMES = (
    lambda x: F.pad(x, (1, 1, 1, 1, 1, 1), "replicate"), lambda x: F.pad(x, (0, 1, 1, 0, 0, 1), "reflect"),
    lambda x: F.max_unpool3d(*F.max_pool3d(x, 2, return_indices=True), 2),
    lambda x: F.grid_sample(x, torch.zeros(x.shape[0], 3, 2, 2, 2).mT, align_corners=False),
)


def test_fakes_of_volumes_lie_as_the_kernels_results_do() -> None:
    last = torch.channels_last_3d
    x = torch.arange(2 * 3 * 4 * 4 * 4.0).view(2, 3, 4, 4, 4)
    for volume in (
        x, x.to(memory_format=last), x.mT.contiguous().mT, x.transpose(1, 4).contiguous().transpose(1, 4),
        x.repeat(1, 2, 1, 1, 1).to(memory_format=last)[:, :3], x.repeat(2, 1, 1, 1, 1).to(memory_format=last)[::2],
    ):
        check(VOLUMES, volume)


@pytest.mark.parametrize("shape", SHAPES)
def test_fakes_of_images_lie_as_the_kernels_results_do(shape: tuple[int, ...]) -> None:
    x = torch.arange(float(torch.Size(shape).numel())).view(shape)
    c = shape[1]
    last = torch.channels_last
    for image in (
        x, x.to(memory_format=last), x.transpose(1, 3).contiguous().transpose(1, 3), x.mT.contiguous().mT,
        x.repeat(1, 1, 1, 2)[..., ::2], x.repeat(1, 2, 1, 1).to(memory_format=last)[:, :c],
        x.repeat(2, 1, 1, 1).to(memory_format=last)[::2], x.transpose(0, 1).contiguous().transpose(0, 1),
    ):
        check(IMAGES, image)


def indexed(rnd: random.Random) -> tuple[torch.Tensor, list[Any]]:
    """A tensor and a key with indices, which may be repeated, permuted and apart."""
    tensor = laid_out(rnd, [rnd.choice((1, 2, 3, 4)) for _ in range(rnd.randrange(1, 5))])
    shape = [rnd.choice((0, 1, 2, 3)) for _ in range(rnd.randrange(1, 3))]
    key: list[Any] = []
    for _ in range(tensor.dim()):
        key += [None] * (rnd.random() < 0.2)
        if rnd.random() < 0.5:
            own = [1 if rnd.random() < 0.2 else size for size in shape]
            key.append(torch.zeros_like(laid_out(rnd, own), dtype=torch.int64))
        else:
            key.append(rnd.choice((slice(None), slice(0, 1), 0)))
    return tensor, key


@pytest.mark.parametrize("seed", range(4))
def test_fakes_of_what_is_read_at_computed_places_lie_as_the_kernels_results_do(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(150):
        tensor, key = indexed(rnd)
        places = [position for position, part in enumerate(key) if isinstance(part, torch.Tensor)]

        def read(x: torch.Tensor, *indices: torch.Tensor, key: list[Any] = key, places: list[int] = places) -> Any:
            whole = [*key]
            for position, index in zip(places, indices):
                whole[position] = index
            return x[tuple(whole)]

        check((read,), tensor, *(key[position] for position in places))


def test_one_hot_of_classes_in_another_order() -> None:
    def program(classes: torch.Tensor) -> Any:
        rows = F.one_hot(classes.mT, 4)
        return rows, rows.stride(), rows.view(-1, 4)

    compiled = framejit.optimize(program, backend="eager")
    for classes in (torch.arange(6).view(2, 3) % 4, torch.ones(3, 2, 4, dtype=torch.int64)):
        expected, result = program(classes), compiled(classes)
        assert result[1] == expected[1] == result[0].stride()
        assert torch.equal(result[0], expected[0]) and torch.equal(result[2], expected[2])


@pytest.mark.parametrize("default", (torch.float32, torch.float64, torch.bfloat16))
def test_fakes_know_the_default_dtype(default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        numbers = torch.arange(4)
        check((*BINARY, torch.ldexp), numbers, numbers)
        check((*UNARY, lambda x: torch.full_like(x, 1.5), lambda x: x.mean(dtype=torch.float32)), numbers)
        check((lambda x: x * 1.5, lambda x: torch.arange(0.0, 2.0) + x[:2]), numbers)
    finally:
        torch.set_default_dtype(before)


def channels_last() -> torch.Tensor:
    return torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (torch.logical_and, lambda: (torch.randn(7, 5).t()[:, :1], torch.randn(5, 5).t())),
        (lambda x: 2**x, lambda: (torch.ones(8, 16).t(),)),
        (torch.sub, lambda: (torch.empty_strided((1, 1, 5), (1, 1, 10)).zero_(), torch.randn(10, 1))),
        (lambda x, y: x * y + 1, lambda: (torch.ones(10, 5).t().int(), torch.tensor(2.0))),
        (lambda x: x.softmax(1) + x, lambda: (channels_last(),)),
        (lambda x: F.channel_shuffle(x, 3), lambda: (channels_last(),)),
        (lambda x: x.masked_fill(x > 0, 0.0), lambda: (torch.randn(4, 6).t(),)),
        (lambda x: torch.special.xlog1py(x, x.t().contiguous().t()), lambda: (torch.rand(4, 6).t(),)),
        (lambda x: F.batch_norm(x, None, None, training=True), lambda: (torch.randn(5, 6, 4).permute(0, 2, 1),)),
        (lambda x: x.new_zeros(x.shape) + x, lambda: (torch.randn(4, 6).t(),)),
        (torch.angle, lambda: (torch.randn(4, 6, dtype=torch.complex64).t(),)),
        (torch.angle, lambda: (torch.randn(4, 6).t(),)),
        (lambda x: torch.isin(x, x[0]).view(-1), lambda: (torch.randn(4, 4).t(),)),
        (lambda x, i: x[None, i, ..., None], lambda: (torch.randn(4, 6).t(), torch.tensor([2, 0]))),
        (lambda x, i: x[i], lambda: (torch.randn(9), torch.arange(6).view(2, 3).t())),
        (lambda x, i: x[:, i, :, i], lambda: (torch.randn(4, 6, 3, 5).permute(3, 0, 2, 1), torch.tensor([2, 0]))),
    ],
)
@pytest.mark.parametrize("dynamic", (False, True))
def test_strides_of_results_and_those_the_program_sees_are_eagers(function: Any, args: Any, dynamic: bool) -> None:
    def program(*args: torch.Tensor) -> Any:
        result = function(*args)
        return result, result.stride()

    compiled = framejit.optimize(program, dynamic=dynamic)
    for _ in range(2):
        torch.manual_seed(0)
        expected, expected_strides = program(*args())
        torch.manual_seed(0)
        result, strides = compiled(*args())
        assert (strides, result.stride()) == (expected_strides, expected.stride())
        torch.testing.assert_close(result, expected)


def reshaped(rnd: random.Random, count: int) -> list[int]:
    """Sizes for so many elements, or nearly."""
    sizes, left = [], count
    while left > 1 and rnd.random() < 0.8:
        sizes.append(rnd.choice([size for size in range(1, left + 1) if left % size == 0]))
        left //= sizes[-1]
    sizes.append(left)
    if rnd.random() < 0.4:
        sizes.insert(rnd.randrange(len(sizes) + 1), rnd.choice((1, 1, 1, 2)))
    if rnd.random() < 0.3:
        sizes[rnd.randrange(len(sizes))] = -1
    return sizes


@pytest.mark.parametrize("seed", range(4))
def test_fakes_have_the_views_that_tensors_have(seed: int) -> None:
    rnd = random.Random(seed)
    mode = Fakes(allow_fallback_kernels=False)
    for a, b in operands(seed):
        for real in (a, b, a.expand(3, *a.shape), b.expand(2, *b.shape)):
            with mode:
                fake = torch.empty_strided(real.shape, real.stride())
            for sizes in (*(reshaped(rnd, real.numel()) for _ in range(4)), list(real.shape)):
                expected = layouts(lambda x, sizes=sizes: x.view(sizes), torch.empty_strided(real.shape, real.stride()))
                assert layouts(lambda x, sizes=sizes: x.view(sizes), fake) == expected, (
                    real.shape, real.stride(), sizes,
                )


REDUCTIONS = [
    *((lambda x, name=name: getattr(x, name)(1, True)) for name in """
        any all sum mean amax prod std logsumexp argmax nanmean max min median
    """.split()),
    *((lambda x, name=name: getattr(x, name)(dim=-2)) for name in "any all sum mean amax prod std norm".split()),
    lambda x: torch.linalg.vector_norm(x, 3, (-1, -2)),
    lambda x: x.any((0, 1), keepdim=True), lambda x: x.all((1,), keepdim=True), lambda x: x.any(0, True),
    lambda x: x.all(0),
    lambda x: torch.linalg.vector_norm(x, 1, (1,), True), lambda x: torch.var_mean(x, 1, keepdim=True),
    lambda x: F.layer_norm(x, x.shape[1:]),
]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("transposed", (False, True))
def test_reductions_in_symbolic_sizes_lie_as_eagers(reduction: Any, transposed: bool) -> None:
    compiled = framejit.optimize(reduction, backend="fuse", dynamic=True)
    for sizes in ((3, 5), (0, 5), (4, 6), (1, 5), (5, 1), (0, 1), (0, 6)):
        x = torch.randn(sizes[::-1]).t() if transposed else torch.randn(sizes)
        assert layouts(compiled, x) == layouts(reduction, x), sizes


aten = torch.ops.aten
ONE = torch.ones(())
OF_TWO = {
    "threshold_backward": lambda a, b: aten.threshold_backward(a, b, 0),
    "elu_backward": lambda a, b: aten.elu_backward(a, 1, 1, 1, False, b),
    "hardtanh_backward": lambda a, b: aten.hardtanh_backward(a, b, -1, 1),
    "hardswish_backward": aten.hardswish_backward,
    "hardsigmoid_backward": aten.hardsigmoid_backward,
    "softplus_backward": lambda a, b: aten.softplus_backward(a, b, 1, 20),
    "leaky_relu_backward": lambda a, b: aten.leaky_relu_backward(a, b, 0.1, False),
    "hardshrink_backward": lambda a, b: aten.hardshrink_backward(a, b, 0.5),
    "softshrink_backward": lambda a, b: aten.softshrink_backward(a, b, 0.5),
    "tanh_backward": aten.tanh_backward,
    "sigmoid_backward": aten.sigmoid_backward,
    "gelu_backward": aten.gelu_backward,
    "silu_backward": aten.silu_backward,
    "mse_loss_backward": lambda a, b: aten.mse_loss_backward(ONE, a, b, 1),
    "huber_loss_backward": lambda a, b: aten.huber_loss_backward(ONE, a, b, 1, 1.0),
    "rrelu_with_noise_backward": lambda a, b: aten.rrelu_with_noise_backward(a, b, b, 0.1, 0.3, True, False),
    "smooth_l1_loss_backward": lambda a, b: aten.smooth_l1_loss_backward(ONE, a, b, 1, 1.0),
    "addcmul": lambda a, b: torch.addcmul(a, b, b),
    "addcdiv": lambda a, b: torch.addcdiv(a, b, b),
    "lerp": lambda a, b: torch.lerp(a, b, 0.5),
    "lerp by a tensor": torch.lerp,
    "where": lambda a, b: torch.where(a > 0, a, b),
    "clamp": lambda a, b: torch.clamp(a, b, b),
    "rsub": torch.rsub,
    "pow": lambda a, b: a.abs().pow(b),
    "xlogy": torch.xlogy,
    "copysign": torch.copysign,
    "a comparison": torch.lt,
}


@pytest.mark.parametrize("name", OF_TWO)
def test_which_operand_decides_how_a_result_lies(name):
    f = OF_TWO[name]
    if name == "lerp by a tensor":
        f = lambda a, b: torch.lerp(b, b, a)  # noqa: E731
    plain, turned = torch.randn(6, 4, 5), torch.randn(5, 6, 4).permute(1, 2, 0)
    other = torch.randn(4, 6, 5).transpose(0, 1)
    pairs = [(turned, plain), (plain, turned), (turned, other), (other, turned), (plain[:, :1], turned)]
    for number, (a, b) in enumerate(pairs):
        backend = "fuse" if number == 0 else "eager"
        told = framejit.optimize(lambda a, b: (f(a, b).stride(), f(a, b)), fullgraph=True, backend=backend)
        strides, result = told(a, b)
        assert strides == result.stride() == f(a, b).stride()


def test_gradients_of_what_lies_in_two_orders():
    def f(x, weight):
        return x.clone().relu_().softmax(-1) @ weight

    fast = framejit.optimize(f, fullgraph=True)
    for _ in range(2):
        x, weight = torch.randn(9, 64).t().requires_grad_(), torch.randn(9, 16).requires_grad_()
        got, expected = (torch.autograd.grad(each(x, weight).sum(), [x, weight]) for each in (fast, f))
        assert [each.stride() for each in got] == [each.stride() for each in expected]
        torch.testing.assert_close(got, expected)
