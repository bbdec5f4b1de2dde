"""What is recorded in the place of operations that only gradient formulas call, each a whole pass over memory by ATen:
arithmetic that is fused with what comes before and behind. The formulas are those of ATen's kernels
(aten/src/ATen/native)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from framejit.backends.fuse.training.wide import in_dtype, is_plain, wide_of

aten = torch.ops.aten

MEAN: Final = 1
"""The number by which ATen says that a loss is a mean."""
_LEAST_VARIANCE: Final = 1e-12
"""What binary_cross_entropy's gradient divides by at least."""


def _nothing(like: torch.Tensor) -> torch.Tensor:
    return aten.scalar_tensor.default(0.0, dtype=like.dtype, device=like.device)


# ---- activations ----


def _glu_backward(grad: torch.Tensor, x: torch.Tensor, dim: int) -> Any:
    if not is_plain(grad, x) or grad.dtype != x.dtype:
        return NotImplemented
    half = x.shape[dim] // 2
    value, gate = (wide_of(aten.slice.Tensor(x, dim, at, at + half)) for at in (0, half))
    open_ = aten.sigmoid.default(gate)
    of_value = aten.mul.Tensor(open_, wide_of(grad))
    closed = aten.rsub.Scalar(open_, 1)
    of_gate = aten.mul.Tensor(aten.mul.Tensor(closed, of_value), value)
    return aten.cat.default([in_dtype(of_value, x.dtype), in_dtype(of_gate, x.dtype)], dim)


def _prelu_backward(grad: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Any:
    if not is_plain(grad, x) or not grad.dtype == x.dtype == weight.dtype:
        return NotImplemented
    is_positive = aten.gt.Scalar(x, 0)
    return (
        aten.where.self(is_positive, grad, aten.mul.Tensor(weight, grad)),
        aten.where.self(is_positive, _nothing(x), aten.mul.Tensor(x, grad)),
    )


# ---- losses ----


def _of_each(grad: torch.Tensor, slope: torch.Tensor, x: torch.Tensor, reduction: int) -> torch.Tensor:
    """The gradient of a loss for `x`, given the loss's slope at each place."""
    if reduction == MEAN:
        slope = aten.mul.Scalar(slope, 1.0 / x.numel())
    return in_dtype(aten.mul.Tensor(slope, wide_of(grad)), x.dtype)


def _huber_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int, delta: float
) -> Any:
    if not _is_loss(grad, x, target):
        return NotImplemented
    distance = aten.sub.Tensor(wide_of(x), wide_of(target))
    return _of_each(grad, aten.clamp.default(distance, -delta, delta), x, reduction)


def _binary_cross_entropy_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None = None, reduction: int = MEAN
) -> Any:
    if not _is_loss(grad, x, target) or weight is not None:
        return NotImplemented
    wide = wide_of(x)
    variance = aten.clamp_min.default(aten.mul.Tensor(aten.rsub.Scalar(wide, 1), wide), _LEAST_VARIANCE)
    return _of_each(grad, aten.div.Tensor(aten.sub.Tensor(wide, wide_of(target)), variance), x, reduction)


def _is_loss(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor) -> bool:
    has_one_dtype = grad.dtype == x.dtype == target.dtype
    return has_one_dtype and is_plain(x, target) and x.shape == target.shape and grad.is_contiguous()


# ---- images ----


def _factors(large: Sequence[int], small: Sequence[int], scales: Sequence[float | None]) -> list[int] | None:
    """How often each size of an image goes into a larger one; None where one does not, or a scale says otherwise."""
    factors = list[int]()
    for one, other, scale in zip(large, small, scales):
        if scale is None and isinstance(one, int) and isinstance(other, int) and other:
            scale = one // other
        if scale is None or int(scale) != scale or one != other * int(scale):
            return None
        factors.append(int(scale))
    return factors


def _blocks(sizes: Sequence[int], factors: Sequence[int]) -> list[int]:
    """Sizes of an image whose pixels are blocks of so many pixels, a dimension for the places in a block behind each
    one."""
    return [size for pair in zip(sizes, factors) for size in pair]


def _is_channels_last(x: torch.Tensor) -> bool:
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def _summed(x: torch.Tensor, factors: Sequence[int]) -> torch.Tensor:
    """The sums of blocks of pixels."""
    first = 1 if _is_channels_last(x) else 2
    if first == 1:
        x = aten.permute.default(x, [0, 2, 3, 1])
    sizes = [x.shape[first + at] // factor for at, factor in enumerate(factors)]
    rest = x.shape[first + len(factors) :]
    blocks = aten.view.default(x, [*x.shape[:first], *_blocks(sizes, factors), *rest])
    made = aten.sum.dim_IntList(blocks, [first + 2 * at + 1 for at in range(len(factors))])
    return aten.permute.default(made, [0, 3, 1, 2]) if first == 1 else made


def _repeated(x: torch.Tensor, factors: Sequence[int]) -> torch.Tensor:
    """Each pixel as a block of pixels."""
    first = 1 if _is_channels_last(x) else 2
    if first == 1:
        x = aten.permute.default(x, [0, 2, 3, 1])
    sizes = x.shape[first : first + len(factors)]
    before, rest = x.shape[:first], x.shape[first + len(factors) :]
    single = aten.view.default(x, [*before, *_blocks(sizes, [1] * len(factors)), *rest])
    blocks = aten.expand.default(single, [*before, *_blocks(sizes, factors), *rest])
    whole = [size * factor for size, factor in zip(sizes, factors)]
    made = aten.view.default(
        aten.clone.default(blocks, memory_format=torch.contiguous_format), [*before, *whole, *rest]
    )
    return aten.permute.default(made, [0, 3, 1, 2]) if first == 1 else made


def _is_image(grad: torch.Tensor) -> bool:
    return is_plain(grad) or _is_channels_last(grad) and grad.is_floating_point() and grad.numel() > 0


def _is_pooled(grad: torch.Tensor, x: torch.Tensor) -> bool:
    """Whether a gradient is that of a pool of `x`, and lies as it does."""
    return _is_image(grad) and _is_channels_last(grad) == _is_channels_last(x) and grad.shape[:2] == x.shape[:2]


def _upsample_nearest_backward(
    grad: torch.Tensor, sizes: Sequence[int], before: Sequence[int], *scales: float | None
) -> Any:
    """Of images that became larger by whole factors."""
    factors = _factors(sizes, before[2:], scales or [None] * len(sizes))
    if factors is None or not _is_image(grad):
        return NotImplemented
    return _summed(grad, factors)


def _avg_pool_backward(
    grad: torch.Tensor, x: torch.Tensor, window: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> Any:
    """Of windows that lie side by side."""
    if len(window) < 2 or x.dim() != len(window) + 2 or any(padding) or stride and [*stride] != [*window]:
        return NotImplemented
    factors = _factors(x.shape[2:], grad.shape[2:], window)
    if factors is None or not _is_pooled(grad, x):
        return NotImplemented
    return _repeated(aten.div.Scalar(grad, divisor or math.prod(factors)), factors)


def _adaptive_avg_pool_backward(grad: torch.Tensor, x: torch.Tensor) -> Any:
    """Of windows that have one size."""
    if x.dim() < 4 or not _is_pooled(grad, x):
        return NotImplemented
    factors = _factors(x.shape[2:], grad.shape[2:], [None] * (x.dim() - 2))
    if factors is None:
        return NotImplemented
    return _repeated(aten.div.Scalar(grad, math.prod(factors)), factors)


# ---- parts of matrices ----


def _diagonal_backward(grad: torch.Tensor, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Any:
    rank = len(sizes)
    is_square = isinstance(sizes[-1], int) and sizes[-1] == sizes[-2] and not offset
    if not is_plain(grad) or not is_square or (dim1 % rank, dim2 % rank) != (rank - 2, rank - 1):
        return NotImplemented
    places = aten.arange.default(sizes[-1], device=grad.device)
    is_there = aten.eq.Tensor(aten.unsqueeze.default(places, 1), places)
    return aten.where.self(is_there, aten.unsqueeze.default(grad, -1), _nothing(grad))


# ---- weights as lengths and directions ----


def _but(dim: int, rank: int) -> list[int]:
    return [other for other in range(rank) if other != dim]


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> Any:
    if not is_plain(v, g) or v.dtype != g.dtype or v.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    dim %= v.dim()
    norm = aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(v, v), _but(dim, v.dim()), True))
    return aten.mul.Tensor(v, aten.div.Tensor(g, norm)), norm


def _weight_norm_backward(
    grad: torch.Tensor, v: torch.Tensor, g: torch.Tensor, norm: torch.Tensor, dim: int
) -> Any:
    if not is_plain(grad, v, g) or v.dtype != g.dtype or v.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    dim %= v.dim()
    along = aten.sum.dim_IntList(aten.mul.Tensor(grad, v), _but(dim, v.dim()), True)
    rest = aten.sub.Tensor(grad, aten.mul.Tensor(v, aten.div.Tensor(along, aten.mul.Tensor(norm, norm))))
    return aten.mul.Tensor(aten.div.Tensor(g, norm), rest), aten.div.Tensor(along, norm)


GRADIENT_DECOMPOSITIONS: Final[dict[Any, Callable[..., Any]]] = {
    aten.glu_backward.default: _glu_backward,
    aten._prelu_kernel_backward.default: _prelu_backward,
    aten.huber_loss_backward.default: _huber_loss_backward,
    aten.binary_cross_entropy_backward.default: _binary_cross_entropy_backward,
    aten.upsample_nearest1d_backward.default: _upsample_nearest_backward,
    aten.upsample_nearest2d_backward.default: _upsample_nearest_backward,
    aten.upsample_nearest3d_backward.default: _upsample_nearest_backward,
    aten._upsample_nearest_exact1d_backward.default: _upsample_nearest_backward,
    aten._upsample_nearest_exact2d_backward.default: _upsample_nearest_backward,
    aten._upsample_nearest_exact3d_backward.default: _upsample_nearest_backward,
    aten.avg_pool2d_backward.default: _avg_pool_backward,
    aten.avg_pool3d_backward.default: _avg_pool_backward,
    aten._adaptive_avg_pool2d_backward.default: _adaptive_avg_pool_backward,
    aten._adaptive_avg_pool3d_backward.default: _adaptive_avg_pool_backward,
    aten.diagonal_backward.default: _diagonal_backward,
    aten._weight_norm_interface.default: _weight_norm,
    aten._weight_norm_interface_backward.default: _weight_norm_backward,
}
