"""Loops, reductions and memory accesses of generated CPU kernels, against the same kernel done one torch operation at a
time."""
from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from framejit.backends.fuse.llvm import kernel as llvm_kernel
from framejit.backends.fuse.llvm.compiled_kernel import load_object
from framejit.backends.fuse.llvm.kernel import Writing, compile_cpu_kernel, kernel_text
from framejit.backends.fuse.loop_ir import expr
from framejit.backends.fuse.loop_ir.expr import Expr, const, load, masked, op, reduce
from framejit.backends.fuse.loop_ir.index import Index, Indirect, Var, flatten, strided
from framejit.backends.fuse.loop_ir.nodes import Kernel, Store
from framejit.backends.fuse.loop_ir.renamed_kernel import RenamedKernel
from tests.fuse.kernel_reference import Reference, flat, kernel, run, steps_apart

SIZES = [1, 2, 7, 15, 16, 17, 64, 100, 1000]
F32 = torch.float32


def check(which: Kernel, tensors: dict[str, torch.Tensor], tolerance: float = 1e-6) -> None:
    """The kernel gives what the reference does, run at once and in pieces."""
    expected = Reference(which, tensors).run()
    compiled = compile_cpu_kernel(which)
    before = {name: flat(tensor).clone() for name, tensor in tensors.items()}
    results = []
    for pieces in (1, 3, max(1, min(compiled.total, 7))):
        for name, tensor in tensors.items():
            flat(tensor).copy_(before[name])
        run(compiled, tensors, pieces)
        results.append({name: flat(tensor).clone() for name, tensor in tensors.items()})
    for name, after in expected.items():
        torch.testing.assert_close(results[0][name], after, rtol=tolerance, atol=tolerance, equal_nan=True)
        for other in results[1:]:
            assert torch.equal(results[0][name].nan_to_num(), other[name].nan_to_num()), (
                "in pieces it is another result"
            )


def number(value: float) -> Expr:
    return const(value, F32)


@pytest.mark.parametrize("size", [*SIZES, 8191, 8192, 20000])
def test_one_loop(size: int) -> None:
    i = Var("i", size)
    tensors = {"x": torch.randn(size), "y": torch.randn(size), "out": torch.zeros(size)}
    value = op(
        "mul", op("maximum", op("add", load("x", Index.of(i), F32), load("y", Index.of(i), F32)), number(0)), number(2)
    )
    check(kernel([i], [], [Store("out", Index.of(i), value)], tensors), tensors)


def test_no_loops() -> None:
    tensors = {"x": torch.tensor(0.3), "out": torch.tensor(0.0)}
    check(kernel([], [], [Store("out", Index({}), op("exp", load("x", Index({}), F32)))], tensors), tensors)


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("rows", [1, 3, 17])
def test_broadcasting(rows: int, columns: int) -> None:
    i, j = Var("i", rows), Var("j", columns)
    tensors = {
        "x": torch.randn(rows, columns), "row": torch.randn(columns), "column": torch.randn(rows),
        "one": torch.randn(()),
    }
    tensors["out"] = torch.zeros(rows, columns)
    place = flatten((i, j), (rows, columns))
    value = op(
        "mul",
        op("add", load("x", place, F32), load("row", Index.of(j), F32)),
        op("exp", load("column", Index.of(i), F32)),
    )
    value = op("sub", value, op("tanh", load("one", Index({}), F32)))
    check(kernel([i, j], [], [Store("out", place, value)], tensors), tensors, 1e-5)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 7), (16, 16), (33, 65), (100, 40), (128, 128), (130, 257)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.bool], ids=str)
def test_transposed(rows: int, columns: int, dtype: torch.dtype) -> None:
    i, j, b = Var("i", rows), Var("j", columns), Var("b", 3)
    x = torch.randn(3, columns, rows).to(dtype)
    tensors = {"x": x, "y": torch.randn(3, rows, columns), "out": torch.zeros(3, rows, columns)}
    place = flatten((b, i, j), (3, rows, columns))
    value = op("add", expr.cast(load("x", flatten((b, j, i), (3, columns, rows)), dtype), F32), load("y", place, F32))
    check(kernel([b, i, j], [], [Store("out", place, value)], tensors), tensors)


@pytest.mark.parametrize("size", SIZES)
def test_mixed_widths(size: int) -> None:
    i = Var("i", size)
    tensors = {
        "h": torch.randn(size).bfloat16(), "m": torch.randint(0, 2, (size,)).bool(),
        "d": torch.randn(size, dtype=torch.float64), "n": torch.randint(-100, 100, (size,), dtype=torch.int8),
        "out": torch.zeros(size).half(), "wide": torch.zeros(size, dtype=torch.float64),
    }
    ix = Index.of(i)
    h = expr.cast(load("h", ix, torch.bfloat16), F32)
    value = op(
        "where", load("m", ix, torch.bool), op("add", h, expr.cast(load("d", ix, torch.float64), F32)),
        expr.cast(load("n", ix, torch.int8), F32),
    )
    stores = [
        Store("out", ix, expr.cast(value, torch.float16)),
        Store("wide", ix, op("mul", load("d", ix, torch.float64), expr.cast(h, torch.float64))),
    ]
    check(kernel([i], [], stores, tensors), tensors)


@pytest.mark.parametrize("size", SIZES)
def test_bytes_only(size: int) -> None:
    i = Var("i", size)
    tensors = {
        "a": torch.randint(0, 255, (size,), dtype=torch.uint8),
        "b": torch.randint(0, 255, (size,), dtype=torch.uint8),
        "out": torch.zeros(size).bool(),
    }
    value = op(
        "lt",
        op("add", load("a", Index.of(i), torch.uint8), load("b", Index.of(i), torch.uint8)),
        const(100, torch.uint8),
    )
    check(kernel([i], [], [Store("out", Index.of(i), value)], tensors), tensors)


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("rows", [1, 4, 33])
@pytest.mark.parametrize("by_column", [False, True])
def test_reductions(rows: int, columns: int, by_column: bool) -> None:
    """Over contiguous rows and over columns: all kinds at once."""
    sizes = (rows, columns)
    i, j = Var("i", rows), Var("j", columns)
    parallel, reduction = (j, i) if by_column else (i, j)
    x = torch.randn(sizes)
    tensors = {"x": x, "n": torch.randint(-50, 50, sizes)}
    lx, ln = load("x", flatten((i, j), sizes), F32), load("n", flatten((i, j), sizes), torch.int64)
    positive = op("gt", lx, number(0))
    values = {
        "sum": reduce("sum", lx), "prod": reduce("prod", lx), "max": reduce("max", lx), "min": reduce("min", lx),
        "any": reduce("any", positive), "all": reduce("all", positive), "argmax": reduce("argmax", lx),
        "argmin": reduce("argmin", ln), "xor": reduce("xor", ln), "isum": reduce("sum", ln),
        "imax": reduce("max", ln), "count": reduce("sum", number(1)), "iprod": reduce("prod", ln),
    }
    tensors |= {name: torch.zeros(parallel.size, dtype=value.dtype) for name, value in values.items()}
    check(
        kernel(
            [parallel], [reduction], [Store(name, Index.of(parallel), value) for name, value in values.items()], tensors
        ),
        tensors,
        1e-5,
    )


@pytest.mark.parametrize("kind", ["max", "min", "argmax", "argmin", "sum"])
@pytest.mark.parametrize("size", [5, 16, 70, 500])
@pytest.mark.parametrize("content", ["nan", "infinite", "equal"])
def test_odd_elements(kind: str, size: int, content: str) -> None:
    x = torch.randn(3, size)
    if content == "nan":
        x[0, size // 2] = x[0, size - 1] = x[1, 0] = math.nan
    elif content == "infinite":
        x[:] = -math.inf if "max" in kind else math.inf
    else:
        x[:] = 1.0
        x[1, size // 3:] = 2.0
    i, j = Var("i", 3), Var("j", size)
    value = reduce(kind, load("x", flatten((i, j), (3, size)), F32))
    tensors = {"x": x, "out": torch.zeros(3, dtype=value.dtype)}
    check(kernel([i], [j], [Store("out", Index.of(i), value)], tensors), tensors)


@pytest.mark.parametrize("sizes", [(3, 4, 5), (2, 64, 49), (40, 3, 1), (1, 1, 700), (9, 130, 3)])
def test_reduction_around_a_parallel_loop(sizes: tuple[int, int, int]) -> None:
    """Batch statistics: mean and variance over the first and the last dimension."""
    a, c, h = Var("a", sizes[0]), Var("c", sizes[1]), Var("h", sizes[2])
    x = torch.randn(sizes) + 5
    count = number(sizes[0] * sizes[2])
    lx = load("x", flatten((a, c, h), sizes), F32)
    mean = op("div", reduce("sum", lx), count)
    centred = op("sub", lx, mean)
    variance = op("div", reduce("sum", op("mul", centred, centred)), count)
    tensors = {"x": x, "mean": torch.zeros(sizes[1]), "variance": torch.zeros(sizes[1]), "out": torch.zeros(sizes)}
    stores = [
        Store("mean", Index.of(c), mean),
        Store("variance", Index.of(c), variance),
        Store(
            "out", flatten((a, c, h), sizes), op("mul", centred, op("rsqrt", op("add", variance, number(1e-5)))),
            in_reduction=True,
        ),
    ]
    check(kernel([c], [a, h], stores, tensors), tensors, 1e-5)


@pytest.mark.parametrize("columns", [*SIZES, 5000, 300_000])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("in_place", [False, True])
def test_softmax(columns: int, across: bool, in_place: bool) -> None:
    rows = 5 if columns < 100_000 else 1
    i, j = Var("i", rows), Var("j", columns)
    x = torch.randn(columns, rows).t() if across else torch.randn(rows, columns)
    place = strided((i, j), x.stride())
    lx = load("x", place, F32)
    shifted = op("exp", op("sub", lx, reduce("max", lx)))
    value = op("div", shifted, reduce("sum", shifted))
    tensors = {"x": x} if in_place else {"x": x, "out": torch.empty_like(x).zero_()}
    store = Store("x" if in_place else "out", place, value, in_reduction=True)
    check(kernel([i], [j], [store], tensors), tensors, 3e-6)


def test_sum_is_accurate() -> None:
    """Sums are nearly as good as the exact sum rounded: no more error than torch's own."""
    size = 1 << 22
    x = torch.rand(size)
    i = Var("i", size)
    tensors = {"x": x, "out": torch.zeros(())}
    run(
        compile_cpu_kernel(
            kernel([], [i], [Store("out", Index({}), reduce("sum", load("x", Index.of(i), F32)))], tensors)
        ),
        tensors,
    )
    exact = x.double().sum().item()
    assert abs(tensors["out"].item() - exact) <= max(abs(x.sum().item() - exact), exact * 2**-23)


@pytest.mark.parametrize("rows", [1, 129, 5000])
def test_sum_over_many_rows(rows: int) -> None:
    i, j = Var("i", rows), Var("j", 40)
    tensors = {"x": torch.randn(rows, 40) + 3, "out": torch.zeros(40)}
    check(
        kernel(
            [j], [i], [Store("out", Index.of(j), reduce("sum", load("x", flatten((i, j), (rows, 40)), F32)))], tensors
        ),
        tensors,
    )


def test_nothing_to_reduce() -> None:
    i, j = Var("i", 3), Var("j", 0)
    place = Index({i: 1, j: 1})
    lx = load("x", place, F32)
    tensors = {
        "x": torch.zeros(3, 0), "sum": torch.ones(3), "prod": torch.zeros(3), "any": torch.ones(3).bool(),
        "all": torch.zeros(3).bool(),
    }
    positive = op("gt", lx, number(0))
    stores = [
        Store("sum", Index.of(i), reduce("sum", lx)), Store("prod", Index.of(i), reduce("prod", lx)),
        Store("any", Index.of(i), reduce("any", positive)), Store("all", Index.of(i), reduce("all", positive)),
    ]
    run(compile_cpu_kernel(kernel([i], [j], stores, tensors)), tensors)
    assert [tensors[name].tolist() for name in ("sum", "prod", "any", "all")] == [
        [0.0] * 3, [1.0] * 3, [False] * 3, [True] * 3,
    ]


def test_no_elements() -> None:
    i = Var("i", 0)
    tensors = {"x": torch.zeros(0), "out": torch.zeros(0)}
    compiled = compile_cpu_kernel(kernel([i], [], [Store("out", Index.of(i), load("x", Index.of(i), F32))], tensors))
    assert compiled.total == 0
    run(compiled, tensors)


@pytest.mark.parametrize("size", [5, 16, 40, 1000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_masked_loads_are_not_carried_out(size: int, dtype: torch.dtype) -> None:
    """A padded copy. What lies around the tensor is not the process's memory, as far as it can be told: the buffer
    starts and ends at a page's edge."""
    i = Var("i", size)
    tensors = {"x": torch.randn(3).to(dtype), "out": torch.zeros(size, dtype=dtype)}
    place = Index.of(i) - (1 << 40)
    inside = op("lt", expr.index_value(i), const(0, torch.int64))
    value = masked(
        inside, load("x", place, dtype), const(7, dtype) if dtype != torch.bfloat16 else expr.cast(const(7, F32), dtype)
    )
    run(compile_cpu_kernel(kernel([i], [], [Store("out", Index.of(i), value)], tensors)), tensors)
    assert (tensors["out"] == 7).all()


@pytest.mark.parametrize("size", [4, 16, 37, 500])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_padding(size: int, dtype: torch.dtype) -> None:
    i, j = Var("i", 3), Var("j", size + 5)
    tensors = {
        "x": torch.randn(3, size).to(dtype),
        "flag": torch.tensor([True, False, True]),
        "out": torch.zeros(3, size + 5, dtype=dtype),
    }
    column = expr.index_value(Index.of(j) - 2)
    inside = op("bitand", op("ge", column, const(0, torch.int64)), op("lt", column, const(size, torch.int64)))
    padded = masked(inside, load("x", strided((i, j), (size, 1), -2), dtype), expr.cast(number(7), dtype))
    value = masked(load("flag", Index.of(i), torch.bool), padded, expr.cast(number(-1), dtype))
    check(kernel([i, j], [], [Store("out", flatten((i, j), (3, size + 5)), value)], tensors), tensors)


@pytest.mark.parametrize(("divisor", "size"), [(3, 30), (7, 100), (16, 160), (64, 640), (5, 1000)])
def test_division_in_an_index(divisor: int, size: int) -> None:
    i = Var("i", size)
    tensors = {
        "x": torch.randn(size // divisor + 1), "y": torch.randn(divisor), "out": torch.zeros(size),
        "places": torch.zeros(size, dtype=torch.int64),
    }
    value = op("add", load("x", Index.of(i) // divisor, F32), load("y", Index.of(i) % divisor, F32))
    stores = [
        Store("out", Index.of(i), value),
        Store("places", Index.of(i), expr.index_value((Index.of(i) * 3 + 1) // 2 % divisor)),
    ]
    check(kernel([i], [], stores, tensors), tensors)


@pytest.mark.parametrize("columns", [1, 8, 16, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_rows_picked_by_number(columns: int, dtype: torch.dtype) -> None:
    """An embedding, and a gather with a number for each element."""
    i, j = Var("i", 37), Var("j", columns)
    tensors = {
        "table": torch.randn(11, columns).to(dtype), "rows": torch.randint(0, 11, (37,)),
        "each": torch.randint(0, 11, (37, columns)), "out": torch.zeros(37, columns, dtype=dtype),
        "gathered": torch.zeros(37, columns, dtype=dtype),
    }
    place = flatten((i, j), (37, columns))
    row, each = Indirect(load("rows", Index.of(i), torch.int64), 11), Indirect(load("each", place, torch.int64), 11)
    stores = [
        Store("out", place, load("table", Index({row: columns}) + j, dtype)),
        Store("gathered", place, load("table", Index({each: columns}) + j, dtype)),
    ]
    check(kernel([i, j], [], stores, tensors), tensors)


def test_scatter_to_numbered_rows() -> None:
    i, j = Var("i", 20), Var("j", 30)
    order = torch.randperm(20)
    tensors = {"x": torch.randn(20, 30), "order": order, "out": torch.zeros(20, 30), "turned": torch.zeros(30, 20)}
    lx = load("x", flatten((i, j), (20, 30)), F32)
    row = Indirect(load("order", Index.of(i), torch.int64), 20)
    check(
        kernel(
            [i, j], [], [Store("out", Index({row: 30}) + j, lx), Store("turned", strided((i, j), (1, 20)), lx)], tensors
        ),
        tensors,
    )


@pytest.mark.parametrize("step", [2, 3, -1])
def test_strided_loads(step: int) -> None:
    i = Var("i", 50)
    tensors = {
        "x": torch.randn(160), "out": torch.zeros(50), "n": torch.randint(0, 9, (160,), dtype=torch.uint8),
        "m": torch.zeros(50, dtype=torch.uint8),
    }
    place = Index.of(i) * step + (60 if step < 0 else 1)
    stores = [Store("out", Index.of(i), load("x", place, F32)), Store("m", Index.of(i), load("n", place, torch.uint8))]
    check(kernel([i], [], stores, tensors), tensors)


def test_in_place_with_two_results() -> None:
    """Both results are of the values before the kernel."""
    i = Var("i", 100)
    tensors = {"x": torch.randn(100), "y": torch.randn(100)}
    lx, ly = load("x", Index.of(i), F32), load("y", Index.of(i), F32)
    check(
        kernel(
            [i], [], [Store("x", Index.of(i), op("add", lx, ly)), Store("y", Index.of(i), op("mul", lx, ly))], tensors
        ),
        tensors,
    )


def test_a_deep_expression() -> None:
    """Thousands of operations behind one another need neither deep recursion nor much time."""
    i = Var("i", 40)
    value = load("x", Index.of(i), F32)
    for turn in range(3000):
        value = op("add" if turn % 2 else "sub", value, number(turn % 7))
    tensors = {"x": torch.randn(40), "out": torch.zeros(40)}
    check(kernel([i], [], [Store("out", Index.of(i), value)], tensors), tensors, 1e-3)


def test_equal_kernels_share_their_code_and_it_travels() -> None:
    def make(names: tuple[str, str]) -> tuple[Kernel, dict[str, torch.Tensor]]:
        i = Var("i" + names[0], 33)
        tensors = {names[0]: torch.randn(33), names[1]: torch.zeros(33)}
        return kernel(
            [i], [], [Store(names[1], Index.of(i), op("tanh", load(names[0], Index.of(i), F32)))], tensors
        ), tensors

    first, second = make(("x", "y")), make(("a", "b"))
    one, two = compile_cpu_kernel(first[0]), compile_cpu_kernel(second[0])
    assert one.code is two.code and one.buffers == ("x", "y") and two.buffers == ("a", "b")
    assert "; test.py:1  a line" in one.source
    key, code, pointers = one.key, bytes(one.object_code), one.buffers
    del one, two
    gc.collect()
    loaded = load_object(code, key)
    again = compile_cpu_kernel(first[0])
    assert again.code is loaded and again.buffers == pointers
    run(again, first[1])
    torch.testing.assert_close(first[1]["y"], first[1]["x"].tanh())


def test_kernels_that_differ_in_names_only_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(names: tuple[str, str, str], size: int = 33, zero: float = 0.0, swapped: bool = False) -> Kernel:
        i = Var("i" + names[0], size)
        x, y, out = names
        tensors = {name: torch.ones(size) for name in (*((y, x) if swapped else (x, y)), out)}
        value = op("add", op("sub", load(x, Index.of(i), F32), load(y, Index.of(i), F32)), number(zero))
        return kernel([i], [], [Store(out, Index.of(i), value)], tensors)

    texts = []
    monkeypatch.setattr(llvm_kernel, "kernel_text", lambda which: texts.append(which) or kernel_text(which))
    writing = Writing()
    first = make(("x", "y", "out"))
    one, two = (compile_cpu_kernel(each, writing=writing) for each in (first, make(("a", "b", "c"))))
    assert len(texts) == 1 and one.code is two.code and one.text == two.text
    assert one.buffers == ("x", "y", "out") and two.buffers == ("a", "b", "c")
    assert "c[ia] = " in two.remarks
    others = [make(("a", "b", "c"), 34), make(("a", "b", "c"), zero=-0.0), make(("a", "b", "c"), swapped=True)]
    for number_of_texts, other in enumerate(others, 2):
        assert compile_cpu_kernel(other, writing=writing).text == kernel_text(other)[0]
        assert len(texts) == number_of_texts
    other_one = make(("d", "e", "f"))
    # as layers alike have them: the second time its remarks are those of the first with other names
    for names in (("a", "b", "c"), ("d", "e", "f"), ("add", "sub", "float32")):
        buffers = make(names).buffers
        again = RenamedKernel(first, dict(zip(first.buffers, buffers.values())), "again_3")
        found = compile_cpu_kernel(again, writing=writing)
        plain = replace(first, stores=again.stores, name="again_3", buffers=buffers)
        assert (found.code, found.remarks) == (one.code, compile_cpu_kernel(plain, writing=writing).remarks)
        assert found.buffers == names and (again.reads, again.writes) == (plain.reads, plain.writes)
        assert again.places == [(store.buffer, store.index) for store in again.stores]
    assert len(texts) == number_of_texts
    together = replace(
        first, stores=[*first.stores, *other_one.stores], buffers=first.buffers | other_one.buffers,
        members=(first, other_one),
    )
    names = {name: make((f"{name}_", "b_", "c_")).buffers[f"{name}_"] for name in together.buffers}
    again = RenamedKernel(together, names, "again")
    assert [[*member.buffers] for member in again.members] == [["x_", "y_", "out_"], ["d_", "e_", "f_"]]
    assert again.plain().stores == again.stores == [store for member in again.members for store in member.stores]
    odd = make(("add", "y", "out"))
    for name in ("a", "b"):
        buffers = make((name, "c", "d")).buffers
        again = RenamedKernel(odd, dict(zip(odd.buffers, buffers.values())), "again")
        plain = replace(odd, stores=again.stores, name="again", buffers=buffers)
        assert compile_cpu_kernel(again, writing=writing).remarks == compile_cpu_kernel(plain).remarks


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_division_by_one_number_for_all(dtype: torch.dtype) -> None:
    """Its reciprocal is used, but nobody can tell."""
    extremes = [0.0, -0.0, 1.0, -3.0, math.inf, -math.inf, math.nan, 1e-40, -1e-44, 3e38, 1e-30, 1e30, 7.0]
    divisors = torch.cat([torch.tensor(extremes, dtype=dtype), torch.randn(50, dtype=dtype).exp()])
    numerators = torch.cat([
        torch.tensor(extremes, dtype=dtype),
        torch.randn(1000, dtype=dtype) * torch.logspace(-40, 38, 1000, dtype=torch.float64).to(dtype),
    ])
    sizes = (len(divisors), len(numerators))
    i, j = Var("i", sizes[0]), Var("j", sizes[1])
    tensors = {"x": numerators, "d": divisors, "out": torch.zeros(sizes, dtype=dtype)}
    value = op("div", load("x", Index.of(j), dtype), load("d", Index.of(i), dtype))
    run(compile_cpu_kernel(kernel([i, j], [], [Store("out", flatten((i, j), sizes), value)], tensors)), tensors)
    expected = numerators / divisors[:, None]
    normal = ~(expected.abs() < torch.finfo(dtype).tiny) & (numerators.abs() > 2.0**-100)
    assert torch.equal(tensors["out"].signbit() | expected.isnan(), expected.signbit() | expected.isnan())
    assert steps_apart(tensors["out"][normal], expected[normal]) == 0
    assert steps_apart(tensors["out"], expected) <= 1


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("kind", "dtype"), [
    ("sum", torch.float64), ("prod", torch.float64), ("max", torch.float64), ("argmin", torch.float64),
    ("max", torch.bool), ("min", torch.bool),
    ("max", torch.uint8), ("min", torch.uint8), ("argmax", torch.uint8), ("sum", torch.int32), ("argmax", torch.int32),
    ("xor", torch.int16),
    ("min", torch.int8), ("argmax", torch.bool)], ids=str)
def test_reductions_of_other_dtypes(kind: str, dtype: torch.dtype, by_column: bool) -> None:
    sizes = (70, 45)
    i, j = Var("i", sizes[0]), Var("j", sizes[1])
    parallel, reduction = (j, i) if by_column else (i, j)
    x = (
        torch.randn(sizes, dtype=dtype)
        if dtype.is_floating_point
        else torch.randint(0, 2 if dtype == torch.bool else 100, sizes).to(dtype)
    )
    value = reduce(kind, load("x", flatten((i, j), sizes), dtype))
    tensors = {"x": x, "out": torch.zeros(parallel.size, dtype=value.dtype)}
    check(kernel([parallel], [reduction], [Store("out", Index.of(parallel), value)], tensors), tensors)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("across", [False, True])
def test_layer_norm_of_half_floats(dtype: torch.dtype, across: bool) -> None:
    rows, columns = 33, 200
    i, j = Var("i", rows), Var("j", columns)
    x = torch.randn(columns, rows).to(dtype).t() if across else torch.randn(rows, columns).to(dtype)
    tensors = {
        "x": x, "weight": torch.randn(columns).to(dtype), "out": torch.empty_like(x).zero_(),
        "least": torch.zeros(rows, dtype=dtype),
    }
    place = strided((i, j), x.stride())
    lx = expr.cast(load("x", place, dtype), F32)
    centred = op("sub", lx, op("div", reduce("sum", lx), number(columns)))
    variance = op("div", reduce("sum", op("mul", centred, centred)), number(columns))
    value = op(
        "mul",
        op("mul", centred, op("rsqrt", op("add", variance, number(1e-5)))),
        expr.cast(load("weight", Index.of(j), dtype), F32),
    )
    least = expr.cast(reduce("min", op("erf", value)), dtype)
    check(
        kernel(
            [i], [j],
            [Store("out", place, expr.cast(value, dtype), in_reduction=True), Store("least", Index.of(i), least)],
            tensors,
        ),
        tensors,
        1e-2,
    )


def test_a_costly_value_of_one_of_two_reduction_loops() -> None:
    """Several passes need it, and it stays the same in the innermost loop."""
    i, j, k = Var("i", 17), Var("j", 3), Var("k", 7)
    value = op("sigmoid", op("sigmoid", load("x", flatten((j, i), (3, 17)), F32)))
    tensors = {"x": torch.randn(3, 17), "out": torch.zeros(17, 3, 7)}
    check(
        kernel(
            [i], [j, k],
            [Store("out", flatten((i, j, k), (17, 3, 7)), op("sub", value, reduce("max", value)), in_reduction=True)],
            tensors,
        ),
        tensors,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.uint8, torch.bool, torch.int16], ids=str)
@pytest.mark.parametrize("columns", [1, 17, 33, 34])
def test_nothing_is_written_beyond_a_row(columns: int, dtype: torch.dtype) -> None:
    """The rows are written in the order of the last one first, so that a later row cannot hide what an earlier one
    wrote too much."""
    i, j = Var("i", 6), Var("j", columns)
    tensors = {"x": torch.randint(1, 2, (6, columns)), "out": torch.zeros(6, columns, dtype=dtype)}
    backwards = Index({i: -columns, j: 1} if columns > 1 else {i: -1}, 5 * columns)
    value = expr.cast(expr.cast(load("x", backwards, torch.int64), F32), dtype)
    check(kernel([i, j], [], [Store("out", backwards, value)], tensors), tensors)


@pytest.mark.parametrize("capability", ["default", "avx2"])
def test_narrower_vectors(capability: str) -> None:
    """torch chooses the width once a process, and so do we."""
    here = Path(__file__)
    some = (
        "broadcasting or transposed or mixed or softmax or padding or picked or (reductions and 17) or (operation and "
        "float32)"
    )
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", some, str(here),
        str(here.with_name("test_llvm_operations.py")),
    ]
    done = subprocess.run(
        command, env={**os.environ, "ATEN_CPU_CAPABILITY": capability}, cwd=here.parents[3], capture_output=True,
        text=True, timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:]
