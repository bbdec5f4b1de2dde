"""Programs with symbolic sizes, for Triton; each with sizes of every class that the generator tells apart when its
limits are those of triton_symbolic.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
import torch.nn.functional as F

from tests.fuse.symbolic_graphs import Input


@dataclass(frozen=True)
class SymbolicCase:
    function: Callable[..., Any]
    inputs: tuple[Input, ...]
    names: str
    """The sizes that are symbolic, a letter each."""
    sweep: tuple[tuple[int, ...], ...]
    """What they are, one after the other."""
    variants: int
    """How many variants all of the sweep may take."""
    atol: float | None = None
    """With a relative tolerance of as much."""
    grows: bool = False
    """Whether captured code itself changes the sizes."""


ROWS: Final = (
    (4, 8), (3, 13), (5, 32), (2, 64), (7, 65), (3, 200), (2, 256), (5, 257), (3, 520), (9, 16), (40, 24), (60, 7),
    (40, 80), (3, 1024),
)
LENGTHS: Final = ((2,), (7,), (16,), (33,), (64,), (257,), (1024,), (3000,), (20001,), (20480,))
SQUARES: Final = ((4, 6), (8, 8), (9, 33), (16, 48), (40, 40), (13, 70), (100, 3))
F32, I64, BF16 = torch.float32, torch.int64, torch.bfloat16


def rows(*more: Input) -> tuple[Input, ...]:
    return (Input(("b", "n")), *more)


def batch_norm_in_training(x: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """What it gives, times what it leaves in its statistics."""
    return F.batch_norm(x, mean, variance, training=True) * (mean + variance)[:, None]


CASES: Final[dict[str, SymbolicCase]] = {
    "pointwise": SymbolicCase(lambda x: F.gelu(x) * 2 + 1, (Input(("n",)),), "n", LENGTHS, 2),
    "pointwise_bf16": SymbolicCase(lambda x: (x * 2).relu(), (Input(("n", 6), BF16),), "n", LENGTHS[:8], 2),
    "broadcast_row": SymbolicCase(lambda x, y: x + y, rows(Input(("n",))), "bn", ROWS, 3),
    "broadcast_column": SymbolicCase(lambda x, y: x * y, rows(Input(("b", 1))), "bn", ROWS, 2),
    "transposed": SymbolicCase(lambda x, y: x.t() + y, rows(Input(("n", "b"))), "bn", SQUARES, 4),
    "permuted": SymbolicCase(lambda x: x.permute(2, 0, 1).contiguous() + 1, (Input(("b", "n", 5)),), "bn", SQUARES, 3),
    "viewed": SymbolicCase(
        lambda x: (x.view(x.shape[0], -1, 2).transpose(0, 1) + 1).contiguous(), (Input(("n", 6)),), "n", LENGTHS[:8], 5
    ),
    "dropout": SymbolicCase(lambda x: F.dropout(x, 0.3) + torch.rand_like(x), (Input(("n",)),), "n", LENGTHS, 2),
    "dropout_of_rows": SymbolicCase(
        lambda x, y: F.dropout(x + y, 0.3) + torch.randn_like(x), rows(Input(("n",))), "bn", ROWS, 2
    ),
    "dropout_of_softmax": SymbolicCase(lambda x: F.dropout(x.softmax(-1), 0.3), rows(), "bn", ROWS, 7, 1e-4),
    "row_sum": SymbolicCase(lambda x: x.sum(1), rows(), "bn", ROWS, 7, 1e-4),
    "row_mean": SymbolicCase(lambda x: x.mean(-1), rows(), "bn", ROWS, 7, 1e-4),
    "row_extremes": SymbolicCase(lambda x: (x.amax(1) - x.amin(1)) * x.argmax(1), rows(), "bn", ROWS, 7),
    "row_any": SymbolicCase(lambda x: (x > 2).any(1), rows(), "bn", ROWS, 7),
    "full_sum": SymbolicCase(lambda x: x.exp().sum(), (Input(("n",)),), "n", LENGTHS[:7], 4, 1e-4),
    "sum_in_parts": SymbolicCase(
        lambda x: x.exp().sum(), (Input(("n",)),), "n", (*LENGTHS[7:], (4096,), (2001,), (16384,)), 4, 1e-4
    ),
    "maximum_in_parts": SymbolicCase(lambda x: x.amax(), (Input(("n", 3)),), "n", (*LENGTHS[7:], (1500,)), 4),
    "column_sum": SymbolicCase(lambda x: x.sum(0), rows(), "bn", ROWS, 4, 1e-4),
    "column_mean_of_many": SymbolicCase(lambda x: x.mean(0), (Input(("n", 8)),), "n", LENGTHS, 5, 1e-4),
    "softmax": SymbolicCase(lambda x: x.softmax(-1), rows(), "bn", ROWS, 7),
    "log_softmax_bf16": SymbolicCase(lambda x: x.log_softmax(-1), (Input(("b", "n"), BF16),), "bn", ROWS, 7),
    "softmax_of_columns": SymbolicCase(lambda x: x.softmax(0), rows(), "bn", ROWS, 4),
    "layer_norm": SymbolicCase(
        lambda x, w: F.layer_norm(x, (48,), w), (Input(("b", "n", 48)), Input((48,))), "bn", SQUARES, 2, 1e-5
    ),
    "batch_norm_in_training": SymbolicCase(
        lambda x, mean: batch_norm_in_training(x, mean.clone(), mean.abs()), (Input(("b", 3, "n")), Input((3,))),
        "bn", SQUARES, 4, 1e-4,
    ),
    "enlarged": SymbolicCase(
        lambda x: F.interpolate(x, scale_factor=2) * 2, (Input((2, 3, "b", "n")),), "bn", SQUARES, 5
    ),
    "layer_norm_of_symbolic_rows": SymbolicCase(
        lambda x, w: F.layer_norm(x, x.shape[1:], w), rows(Input(("n",))), "bn", ROWS, 7, 1e-4
    ),
    "joined": SymbolicCase(lambda x, y: torch.cat([x, y + 1], 1), rows(Input(("b", 3))), "bn", SQUARES, 4),
    "joined_rows": SymbolicCase(lambda x, y: torch.cat([x * 2, y]), rows(Input(("n", "n"))), "bn", SQUARES, 3),
    "gathered": SymbolicCase(lambda x, i: x.gather(1, i) * 2, rows(Input(("b", 3), I64, 2)), "bn", SQUARES, 2),
    "embedded": SymbolicCase(
        lambda i, w: F.embedding(i, w).mean(1), (Input(("b", "n"), I64, 20), Input((20, 12))), "bn", SQUARES, 4, 1e-5
    ),
    "scanned": SymbolicCase(lambda x: x.cumsum(1) + 1, rows(), "bn", ROWS, 7, 1e-4),
    "scanned_columns": SymbolicCase(lambda x: x.cumsum(0), rows(), "bn", SQUARES, 2, 1e-4),
    "halves": SymbolicCase(
        lambda x: x[: x.shape[0] // 2] + x[x.shape[0] - x.shape[0] // 2 :], rows(), "bn", SQUARES, 1
    ),
    "flipped": SymbolicCase(lambda x: x.flip(1) - x, rows(), "bn", SQUARES, 2),
    "expanded": SymbolicCase(
        lambda x: x.unsqueeze(0).expand(3, -1, -1).reshape(-1, x.shape[1]) + 1, rows(), "bn", SQUARES, 2
    ),
    "counted": SymbolicCase(lambda x: x * x.numel() - x.shape[0], (Input(("n", 3)),), "n", LENGTHS, 2),
    "pinned": SymbolicCase(lambda x: x + x.shape[0] / 1.0, (Input(("n", 3)),), "n", LENGTHS[:4], 4),
}
GROWING: Final = {
    f"{name}_growing": replace(CASES[name], grows=True, variants=variants)
    for name, variants in {
        "pointwise": 2, "pointwise_bf16": 2, "broadcast_row": 2, "transposed": 3, "viewed": 2, "row_sum": 7,
        "column_sum": 2, "column_mean_of_many": 4, "softmax": 7, "joined": 2, "joined_rows": 2, "embedded": 3,
    }.items()
}
"""The same sizes, which are expected to change: whether one is a multiple now says nothing, and magnitudes matter
less."""
CASES.update(GROWING)
