"""How far rounding alone can move a program's numbers: eager once more, with every inexact result moved by its last
bits.

Kernels that compute in another order, or keep more digits in between, may differ from eager by that much and by no
more. A constant tolerance would say nothing of sums that cancel, and hide errors where numbers are small.
"""
from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

EXACT = {
    *(
        "abs", "neg", "relu", "clamp", "maximum", "minimum", "where", "copy_", "fill_", "zero_", "clone", "_to_copy",
        "amax", "amin", "max", "min", "sort", "topk", "index", "gather", "cat", "stack", "floor", "ceil", "trunc",
    ),
    *(
        "round", "sign", "masked_fill", "zeros_like", "ones_like", "full_like", "empty_like", "empty", "zeros",
        "ones", "full", "arange", "rand", "randn", "rand_like", "bernoulli", "normal_", "uniform_", "bernoulli_",
        "flip", "roll",
    ),
    *(
        "repeat", "index_select", "nan_to_num", "tril", "eye", "scatter", "constant_pad_nd", "unique2", "_unique2",
        "lift_fresh", "scalar_tensor", "empty_strided", "set_", "resize_", "detach", "alias", "median",
    ),
}
SUMS = {
    *(
        "sum", "mean", "var", "std", "var_mean", "std_mean", "prod", "cumsum", "cumprod", "trace", "dot", "mv", "mm",
        "bmm", "addmm", "addmv", "baddbmm", "convolution", "linalg_vector_norm", "norm", "logsumexp", "_softmax",
        "_log_softmax", "native_layer_norm", "native_batch_norm", "native_group_norm", "native_layer_norm_backward",
        "native_batch_norm_backward", "native_group_norm_backward",
    )
}
"""Their rounding errors grow with what is added up, which may be far larger than what comes out."""

DIVIDED: Final = {
    *("var", "std", "var_mean", "std_mean", "native_layer_norm", "native_batch_norm", "native_group_norm"),
    *("native_layer_norm_backward", "native_batch_norm_backward", "native_group_norm_backward"),
}
"""Operations whose results are rounded also where what is added up has few digits: they compare with its mean."""


class Jitter(TorchDispatchMode):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = torch.Generator().manual_seed(seed)
        self.positive = bool(seed % 2)
        """The sign of each NaN: no kernel promises one, and torch's own differ with the place in memory."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[-1]
        if name in SUMS and not func._schema.is_mutable:
            args = tree_map_only(torch.Tensor, lambda tensor: self.moved(tensor, name in DIVIDED), args)
        result = func(*args, **(kwargs or {}))
        is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
        if is_view or name in EXACT and not _narrows(name, args, result):
            return result
        if name == "gelu":
            self.cancel(args[0], result)
            self.overflow(args[0], result)
        given_finite = all(bool(t.isfinite().all()) for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor))
        for tensor in {
            id(t): t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and _inexact(t) and t.numel()
        }.values():
            if tensor.dtype == torch.float16 and given_finite and self.positive:
                tensor.nan_to_num_(nan=math.nan)  # the largest for inf: a kernel keeps it in float32, where it fits
            self.move(torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor)
        return result

    def cancel(self, given: torch.Tensor, result: torch.Tensor) -> None:
        """What gelu loses where 1 and erf(x / sqrt(2)) cancel: digits of 1, times x. torch's vectors lose up to 2.4
        units of the last place of 1 between -6 and 6 in float32, measured against float64."""
        noise = torch.rand(given.shape, generator=self.random, dtype=torch.float64) - 0.5
        lost = given.double() * noise * 4 * torch.finfo(given.dtype).eps
        result.copy_(torch.where(lost.isfinite(), result.double() + lost, result.double()).to(result.dtype))

    def overflow(self, given: torch.Tensor, result: torch.Tensor) -> None:
        """What gelu gives for what overflows when doubled: torch's vectors give inf, and nan for inf; the elements
        after them what they are given."""
        doubled = torch.where(given.isinf(), math.nan, math.inf).to(result.dtype)
        result.copy_(torch.where(given > torch.finfo(given.dtype).max / 2, given if self.positive else doubled, result))

    def moved(self, tensor: torch.Tensor, exact_too: bool) -> torch.Tensor:
        if not _inexact(tensor) or not tensor.numel():
            return tensor
        copy = tensor.clone()
        self.move(torch.view_as_real(copy) if copy.is_complex() else copy, exact_too)
        return copy

    def move(self, tensor: torch.Tensor, exact_too: bool = False) -> None:
        noise = torch.rand(tensor.shape, generator=self.random, dtype=torch.float64) - 0.5
        # small multiples of a power of two come out alike in any order; of few digits all numbers are such multiples
        parts, limit = (16, 4096) if torch.finfo(tensor.dtype).eps < 1e-5 else (1, 16)
        exact = (tensor.double() * parts).frac() == 0
        exact &= tensor.abs() < (0 if exact_too else limit)
        moved = tensor.double() * (1 + noise * 2 * torch.finfo(tensor.dtype).eps)
        moved = torch.where(moved.isnan(), moved.copysign(torch.tensor(1.0 if self.positive else -1.0)), moved)
        with contextlib.suppress(RuntimeError):  # memory that several elements share
            tensor.copy_(torch.where(exact, tensor.double(), moved).to(tensor.dtype))


def _inexact(tensor: torch.Tensor) -> bool:
    return (tensor.is_floating_point() or tensor.is_complex()) and not tensor.is_conj()


def _narrows(name: str, args: Any, result: Any) -> bool:
    """Whether a conversion drops digits, which a kernel may keep until it stores them."""
    return name == "_to_copy" and result.is_floating_point() and result.itemsize < args[0].itemsize


@contextlib.contextmanager
def jittered(seed: int) -> Iterator[None]:
    with Jitter(seed):
        yield
