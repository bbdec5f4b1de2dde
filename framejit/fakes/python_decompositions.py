"""Torch's decompositions in Python, which some operations need to compute with symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher

aten = torch.ops.aten
_COMPOSITE: Final = DispatchKey.CompositeImplicitAutograd
_KEYS: Final = (_COMPOSITE, DispatchKey.Autograd)
"""The dispatch keys that torch registers decompositions in Python for."""
_PRODUCT: Final = aten.matmul.default
_DECOMPOSED: Final = _PRODUCT.py_kernels.get(_COMPOSITE)


@contextmanager
def python_decompositions() -> Iterator[None]:
    """Operations that eager decomposes in C++ are decomposed in Python. Torch's decomposition of matrix products gives
    views of what they are made in, which eager's are not."""
    with enable_python_dispatcher(), _derived_as_in_eager():
        if _DECOMPOSED is None:  # a release of torch that has none
            yield
            return
        _decompose_products_by(_product)
        try:
            yield
        finally:
            _decompose_products_by(_DECOMPOSED)


@contextmanager
def _derived_as_in_eager() -> Iterator[None]:
    """Operations that torch decomposes wrongly keep the gradient that they have in eager."""
    found = ((op, _BY_SIZES.get(op)) for op in (*_DECOMPOSED_WRONGLY, *_BY_SIZES))
    kept = [(op, key, op.py_kernels[key], other) for op, other in found for key in _KEYS if key in op.py_kernels]
    for op, key, _, other in kept:
        if other is None:
            del op.py_kernels[key]
        else:
            op.py_kernels[key] = other
    _forget_choices(op for op, *_ in kept)
    try:
        yield
    finally:
        for op, key, kernel, _ in kept:
            op.py_kernels[key] = kernel
        _forget_choices(op for op, *_ in kept)


def _by_size_and_scale(
    op: torch._ops.OpOverload, x: torch.Tensor, sizes: list[int] | None, scales: list[float] | None
) -> torch.Tensor:
    from torch._decomp.decompositions import upsample_compute_output_size  # imports much

    size = upsample_compute_output_size(x.shape, sizes, scales)
    given: list[float | None] = [*scales] if scales else [None] * len(size)
    made: torch.Tensor = op(x, size, *given)
    return made


_NEAREST: Final = (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d)
_BY_SIZES: Final = {packet.vec: partial(_by_size_and_scale, packet.default) for packet in _NEAREST}
"""For the operations that enlarge images by sizes or by scales what calls those that take both, as eager does."""
_DECOMPOSED_WRONGLY: Final = (
    *(packet.default for packet in _NEAREST), aten.multilabel_margin_loss_forward.default
)
"""Whose decompositions give other results: of images next to twice as large other pixels (ATen, `nearest_idx` in
native/UpSample.h), of labels that end early others."""


def _forget_choices(ops: Iterable[torch._ops.OpOverload]) -> None:
    """Have torch choose anew what carries operations out."""
    for op in ops:
        op._dispatch_cache.clear()


def _decompose_products_by(function: Any) -> None:
    _PRODUCT.py_kernels[_COMPOSITE] = function
    _forget_choices([_PRODUCT])


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    assert _DECOMPOSED is not None
    product: torch.Tensor = _DECOMPOSED(a, b)
    if not product._is_view() or product._base is None:
        return product
    made: torch.Tensor = torch.ops.aten._unsafe_view.default(product._base, product.shape)
    return made if made.stride() == product.stride() else product
