"""Kernels with scans, and kernels that store several parts of one buffer, built by hand. Importing this adds them to
`triton_cases.CASES`."""
from __future__ import annotations

import math

import torch

from framejit.backends.fuse.loop_ir.expr import Expr, cast, const, masked, reduce, scan
from framejit.backends.fuse.loop_ir.index import Index, Var
from framejit.backends.fuse.loop_ir.nodes import Store
from tests.fuse.triton_kernels.triton_cases import BF16, F32, I64, Build, Case, _of, case

TIES = torch.tensor([0.0, -0.0, 3.0, 1.0, 3.0, -math.inf, math.nan, 5.0, math.nan, math.inf])


def _rows(name: str, rows: int, columns: int, dtype: torch.dtype = F32, **tolerance: float) -> Case:
    """(cumsum(x * 2) - 1) * x: what goes before and after a scan is done in the same turn."""
    i, j = Var("i", rows), Var("j", columns)
    x = torch.randint(-5, 6, (rows, columns)).to(dtype)
    b = Build((i,), (j,))
    v = b.read("x", x, i, j)
    total = scan("sum", _of("mul", v, const(2, v.dtype)))
    value = _of("mul", _of("sub", total, const(1, v.dtype)), v)
    compute = x.float() if dtype == BF16 else x
    b.write("o", (((compute * 2).cumsum(-1) - 1) * compute).to(dtype), cast(value, dtype), i, j, in_reduction=True)
    return b.case(name, **tolerance)


@case
def scan_rows() -> Case:
    return _rows("scan_rows", 300, 70)


@case
def scan_rows_of_integers() -> Case:
    return _rows("scan_rows_of_integers", 9, 128, I64)


@case
def scan_rows_of_bfloat16() -> Case:
    return _rows("scan_rows_of_bfloat16", 5, 33, BF16, rtol=8e-3)


@case
def scan_long_rows() -> Case:
    return _rows("scan_long_rows", 200, 2500)


@case
def scan_few_long_rows() -> Case:
    return _rows("scan_few_long_rows", 2, 5000)


def _extremes(name: str, rows: int, columns: int, across: bool = False) -> Case:
    i, j = Var("i", rows), Var("j", columns)
    x = TIES[torch.randint(0, len(TIES), (rows, columns))]
    x[: rows // 2] = x[: rows // 2].nan_to_num(1.0, -2.0, -2.0).round()
    x = x.t() if across else x
    place = (j, i) if across else (i, j)
    b = Build((i,), (j,))
    v = b.read("x", x.contiguous(), *place)
    for which, function in (("max", torch.cummax), ("min", torch.cummin)):
        values, places = function(x, 0 if across else 1)
        b.write(which, values.contiguous(), scan(which, v), *place, in_reduction=True)
        b.write(f"arg{which}", places.contiguous(), scan(f"arg{which}", v), *place, in_reduction=True)
    return b.case(name, rtol=0.0, atol=0.0)


@case
def scan_extremes() -> Case:
    return _extremes("scan_extremes", 20, 45)


@case
def scan_extremes_of_long_rows() -> Case:
    return _extremes("scan_extremes_of_long_rows", 3, 2200)


@case
def scan_extremes_of_columns() -> Case:
    return _extremes("scan_extremes_of_columns", 40, 300, across=True)


@case
def scan_columns() -> Case:
    i, j = Var("i", 100), Var("j", 600)
    x = torch.rand(600, 100) + 0.5
    b = Build((i,), (j,))
    b.write("o", x.cumprod(0), scan("prod", b.read("x", x, j, i)), j, i, in_reduction=True)
    return b.case("scan_columns", rtol=1e-4)


@case
def scan_logarithms() -> Case:
    i, j = Var("i", 140), Var("j", 50)
    x = torch.randn(140, 50) * 20
    x[0, :3], x[1, 4], x[2, 0], x[3, 7] = -math.inf, math.inf, -math.inf, math.nan
    b = Build((i,), (j,))
    b.write("o", x.logcumsumexp(1), scan("logsumexp", b.read("x", x, i, j)), i, j, in_reduction=True)
    return b.case("scan_logarithms")


def _nucleus(name: str, rows: int, columns: int) -> Case:
    """softmax(x) where the sum of those before is less than 0.9: reductions, then a scan, in passes over the same
    loops."""
    i, j = Var("i", rows), Var("j", columns)
    x = torch.randn(rows, columns).sort(-1, descending=True).values
    b = Build((i,), (j,))
    v = b.read("x", x, i, j)
    exponential = _of("exp", _of("sub", v, reduce("max", v)))
    p = _of("div", exponential, reduce("sum", exponential))
    before = _of("sub", scan("sum", p), p)
    expected = x.double().softmax(-1)
    kept = expected.cumsum(-1) - expected < 0.9
    assert ((expected.cumsum(-1) - expected - 0.9).abs() > 1e-6).all()
    value = _of("where", _of("lt", before, const(0.9, F32)), p, const(0.0, F32))
    b.write("o", torch.where(kept, expected, 0.0).float(), value, i, j, in_reduction=True)
    b.write("count", kept.sum(-1), reduce("sum", cast(_of("lt", before, const(0.9, F32)), I64)), i)
    return b.case(name)


@case
def scan_after_softmax() -> Case:
    return _nucleus("scan_after_softmax", 150, 200)


@case
def scan_after_softmax_of_long_rows() -> Case:
    return _nucleus("scan_after_softmax_of_long_rows", 2, 3000)


@case
def scan_of_scan_under_mask() -> Case:
    i, j = Var("i", 12), Var("j", 40)
    x, y = torch.randint(0, 9, (12, 40)), torch.randint(0, 9, (12, 40))
    b = Build((i,), (j,))
    twice = scan("max", scan("sum", b.read("x", x, i, j)))
    value = masked(_of("gt", b.read("y", y, i, j), const(4, I64)), twice, const(-1, I64))
    b.write("o", torch.where(y > 4, x.cumsum(-1).cummax(-1).values, -1), value, i, j, in_reduction=True)
    ones = torch.arange(1, 41).expand(12, 40).contiguous()
    b.write("ones", ones, scan("sum", const(1, I64)), i, j, in_reduction=True)
    return b.case("scan_of_scan_under_mask")


@case
def parts() -> Case:
    """Three pieces that lie side by side in one buffer, stored in the same turns."""
    i, j = Var("i", 130), Var("j", 24)
    whole = torch.empty(130, 72)
    b = Build((i, j))
    functions: tuple[tuple[str, Expr], ...] = ()
    for number, name in enumerate(("sin", "exp", "abs")):
        x = torch.randn(130, 24)
        functions += ((name, _of(name, b.read(name, x, i, j))),)
        whole[:, number * 24 : number * 24 + 24] = getattr(torch, name)(x)
    b.outputs["o"] = whole
    b.stores += [Store("o", Index.of(i) * 72 + j + number * 24, value) for number, (_, value) in enumerate(functions)]
    return b.case("parts")
