"""Which composite operations are wanted whole: those that are lowered, and those that ATen does best in one."""

from __future__ import annotations

from typing import Final

import torch

from framejit.backends.fuse.lowering.lowerings import functional_name, lowering_of
from framejit.backends.fuse.lowering.operators import all_operators
from framejit.backends.may_raise import CHECKED

all_operators.load()

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
"""Operations that look at numbers and raise; where they are composite, the parts that fakes are given for them do not
check. (Of norms they do.)"""


def keeps(func: torch._ops.OpOverload) -> bool:
    """Whether a composite operation is wanted whole."""
    if func.namespace != "aten":
        return False
    name = func._opname
    return name in WHOLE or checks_numbers(func) or lowering_of(functional_name(name), func._overloadname) is not None


def checks_numbers(func: torch._ops.OpOverload) -> bool:
    """Whether an operation raises for numbers that its parts, if it is composite, do not look at."""
    return func.namespace == "aten" and functional_name(func._opname) in CHECKING
