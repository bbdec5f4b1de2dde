"""Torch's decompositions in Python, which some operations need to compute with symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch._dispatch.python import enable_python_dispatcher

_COMPOSITE: Final = DispatchKey.CompositeImplicitAutograd
_PRODUCT: Final = torch.ops.aten.matmul.default
_DECOMPOSED: Final = _PRODUCT.py_kernels.get(_COMPOSITE)


@contextmanager
def python_decompositions() -> Iterator[None]:
    """Operations are decomposed in Python, as eager decomposes them in C++. Torch's decomposition of matrix products
    gives views of what they are made in, which eager's are not."""
    with enable_python_dispatcher():
        if _DECOMPOSED is None:  # a release of torch that has none
            yield
            return
        _decompose_products_by(_product)
        try:
            yield
        finally:
            _decompose_products_by(_DECOMPOSED)


def _decompose_products_by(function: Any) -> None:
    _PRODUCT.py_kernels[_COMPOSITE] = function
    _PRODUCT._dispatch_cache.clear()


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    assert _DECOMPOSED is not None
    product: torch.Tensor = _DECOMPOSED(a, b)
    if not product._is_view() or product._base is None:
        return product
    made: torch.Tensor = torch.ops.aten._unsafe_view.default(product._base, product.shape)
    return made if made.stride() == product.stride() else product
