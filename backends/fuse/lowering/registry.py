"""Which operations are lowered, and by what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from framejit.backends.may_raise import CHECKED

Lowering = Callable[..., Any]
"""Takes the builder, the fake or fakes that the operation gave, and its arguments with Tensors for fakes. Gives a Tensor, a tuple of Tensors or
None, or NotImplemented where ATen is to do it."""

LOWERINGS: Final[dict[str, Lowering]] = {}
"""By the name of the ATen operation, or by name and overload where one overload is meant."""

WHOLE: Final = frozenset(
    (
        "linear",
        "matmul",
        "batch_norm",
        "bilinear",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "scaled_dot_product_attention",
        "lstm",
        "gru",
        "rnn_tanh",
        "rnn_relu",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "dropout",
        "feature_dropout",
        "alpha_dropout",
        "feature_alpha_dropout",
        "dropout_",
        "feature_dropout_",
        "alpha_dropout_",
        "feature_alpha_dropout_",
        "rrelu",
        "cdist",
        "ctc_loss",
        "einsum_path",
        "embedding_bag",
        "multinomial",
        "stft",
        "istft",
        "pinverse",
        "chain_matmul",
        "linalg_multi_dot",
        "linalg_matrix_power",
        "linalg_svd",
        "svd",
        "qr",
    )
)
"""Composite operations that ATen does best in one."""

CHECKING: Final = (CHECKED | {"one_hot"}) - {"linalg_norm", "linalg_matrix_norm"}
"""Operations that look at numbers and raise; where they are composite, the parts that fakes are given for them do not check. (Of norms they do.)"""

FUSED_DTYPES: Final = frozenset(
    (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool)
)


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a function as the lowering of operations."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            if name in LOWERINGS:
                raise ValueError(f"{name} is lowered twice")
            LOWERINGS[name] = function
        return function

    return register


def lowering_of(name: str, overload: str = "") -> Lowering | None:
    """The lowering of an operation, if it has one."""
    return LOWERINGS.get(f"{name}.{overload}") or LOWERINGS.get(name)


def functional_name(name: str) -> str:
    """The name of what an operation that writes its first argument computes."""
    return name[:-1] if name.endswith("_") and not name.endswith("__") else name


def keeps(func: torch._ops.OpOverload) -> bool:
    """Whether a composite operation is wanted whole."""
    if func.namespace != "aten":
        return False
    name = func._opname
    return name in WHOLE or functional_name(name) in CHECKING or lowering_of(functional_name(name), func._overloadname) is not None
