"""Reductions of values far from zero, and of huge and tiny ones: as near to what double precision gives as eager is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit

OFFSETS = ((1e3, 1e-3), (1e4, 1.0), (1e4, 0.1), (-3e5, 30.0), (0.0, 1.0))


def batch_statistics(x: torch.Tensor) -> torch.Tensor:
    mean, variance = torch.zeros(x.shape[1], dtype=x.dtype), torch.zeros(x.shape[1], dtype=x.dtype)
    F.batch_norm(x, mean, variance, training=True, momentum=1.0)
    return variance


STATISTICS = {
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1),
    "var of all": lambda x: x.var(),
    "var of columns": lambda x: x.var(0),
    "biased": lambda x: torch.var(x, 1, correction=0),
    "var_mean": lambda x: torch.var_mean(x, -1)[0],
    "mean of var_mean": lambda x: torch.var_mean(x, -1)[1],
    "std_mean": lambda x: torch.std_mean(x, -1, keepdim=True)[0],
    "batch norm": batch_statistics,
    "native layer norm": lambda x: torch.native_layer_norm(x, x.shape[1:], None, None, 0.0)[2],
    "logsumexp": lambda x: x.logsumexp(-1),
    "norm": lambda x: x.norm(dim=-1),
    "cov": lambda x: (x - x.mean(-1, keepdim=True)).square().mean(-1),
}


def error(result: torch.Tensor, exact: torch.Tensor) -> float:
    return float(((result - exact) / exact).abs().max())


@pytest.mark.parametrize("length", (7, 300, 1000, 40000))
@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_offset_data(name: str, length: int) -> None:
    statistic = STATISTICS[name]
    torch.manual_seed(0)
    for offset, spread in OFFSETS:
        x = torch.randn(20, length) * spread + offset
        if offset == 0 and "mean" in name:
            continue
        compiled = framejit.optimize(statistic)
        exact, eager = statistic(x.double()), statistic(x)
        factor = 8 if name == "cov" else 2  # whose mean the program rounds
        assert error(compiled(x), exact) <= factor * error(eager, exact) + 1e-6, (offset, spread)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
def test_variances_of_special_rows(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    rows = [[3.0], [1000.1], [inf, 1.0], [nan, 1.0], [1e25, -1e25], [1e-30], [1e-25, -1e-25], [0.0], [1.0, -0.0]]
    rows = [[row[0], *[row[-1]] * 39] for row in rows]
    x = torch.tensor(rows, dtype=dtype)
    for function in (
        lambda x: x.var(-1), lambda x: x.std(-1), lambda x: torch.var_mean(x, -1, correction=0),
        lambda x: torch.var(x[:, :1], 1),
    ):
        expected: Any = function(x)
        result = framejit.optimize(function)(x)
        for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (result, expected))):
            torch.testing.assert_close(
                one, other, equal_nan=True, rtol=1.6e-2 if dtype == torch.bfloat16 else 1e-5, atol=1e-6
            )
