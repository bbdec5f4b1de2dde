"""What a plan calls for an operation of ATen's."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

# Python's own entries to operations parse their arguments quicker than an OpOverload does. Only those are here whose
# parameters have the operation's order, and whose overloads can't be mixed up.
_FUNCTIONS: Final = (
    "matmul",
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "addmv",
    "mv",
    "dot",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "bilinear",
    "embedding",
    "index_select",
    "gather",
    "cumsum",
    "topk",
    "sort",
    "cat",
    "stack",
    "cdist",
)
_NN_FUNCTIONS: Final = (
    "linear", "scaled_dot_product_attention", "one_hot", "pad", "avg_pool2d", "adaptive_avg_pool2d",
    "upsample_nearest2d",
)
_BY_POSITION: Final = {
    **{name: getattr(torch._C._VariableFunctions, name) for name in _FUNCTIONS},
    **{name: getattr(torch._C._nn, name) for name in _NN_FUNCTIONS},
}


def callable_of(func: torch._ops.OpOverload) -> Callable[..., Any]:
    """The quickest callable that does the operation."""
    if func.namespace == "aten" and func._overloadname in ("default", "padding", ""):
        return _BY_POSITION.get(func._opname, func)
    return func
