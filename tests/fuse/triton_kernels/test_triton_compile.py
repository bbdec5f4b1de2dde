"""Generated kernels compile to machine code for sm_90 without a GPU, and what the plan is told about them is so."""
from __future__ import annotations

import gc
import os
import pathlib
import re
from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
import tests.fuse.triton_kernels.triton_scan_cases  # noqa: F401  (adds its cases)
from framejit.backends.fuse.loop_ir.expr import OPERATIONS, const, load, op, reduce  # noqa: E402
from framejit.backends.fuse.loop_ir.index import Index, Var, fresh_var  # noqa: E402
from framejit.backends.fuse.loop_ir.nodes import Buffer, Kernel, Store  # noqa: E402
from framejit.backends.fuse.triton import compile  # noqa: E402
from framejit.backends.fuse.triton.analysis import Analysis  # noqa: E402
from framejit.backends.fuse.triton.expressions import operation  # noqa: E402
from framejit.backends.fuse.triton.kernel_source import DEVICE_FUNCTIONS, triton_source  # noqa: E402
from framejit.backends.fuse.triton.tiles import tile as tiles  # noqa: E402
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU  # noqa: E402
from framejit.backends.fuse.triton.tiles.blocks import candidates  # noqa: E402
from framejit.backends.fuse.triton.triton_support import supports  # noqa: E402
from tests.fuse.triton_kernels.machine_code import machine_code  # noqa: E402
from tests.fuse.triton_kernels.triton_cases import CASES, Build, _softmax  # noqa: E402

import forked  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("floats_32", "floats_64")])
def test_compiles_for_sm_90(name: str) -> None:
    source = triton_source(CASES[name]().kernel, replace(WITHOUT_A_GPU, longest_row=2048, longest_block=2048))
    (binary,) = machine_code([source])
    assert binary.cubin[:4] == b"\x7fELF" and binary.name.encode() in binary.cubin
    assert binary.threads == 32 * source.warps and binary.pointers == len(source.buffers)
    assert 0 <= binary.scratch <= 3
    assert binary.arguments(range(binary.pointers))[-1:] == (
        (("null",),) if binary.scratch else (("p", binary.pointers - 1),)
    )


@pytest.mark.parametrize("hints", [False, True])
@pytest.mark.parametrize(
    "name", ["softmax_row", "layer_norm_gelu", "pointwise_large_and_odd", "nested_masks", "in_place"]
)
def test_compiles_for_few_programs_that_stay(name: str, hints: bool) -> None:
    kernel = CASES[name]().kernel
    tile = replace(next(candidates(kernel)), resident=2, stages=2, streamed=True, hints=hints)
    source = triton_source(kernel, tile=tile)
    assert source.grid == (2, 1, 1) and machine_code([source])[0].cubin


@pytest.mark.parametrize("name", ["layer_norm_gelu", "column_sums", "pointwise_ragged", "whole_sum"])
def test_a_kernel_that_waits_reads_before_only_what_it_may(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CASES[name]().kernel
    steady, *_ = kernel.reads
    source = triton_source(replace(kernel, steady=frozenset([steady])))
    assert source.waits and source.key != triton_source(kernel).key
    texts: list[str] = []
    real = compile._parameters
    monkeypatch.setattr(compile, "_parameters", lambda ptx: texts.append(ptx) or real(ptx))
    (binary,) = machine_code([source])
    assert binary.cubin[:4] == b"\x7fELF"
    [ptx] = texts
    begun, wait = ptx.index("griddepcontrol.launch_dependents"), ptx.index("griddepcontrol.wait")
    assert begun < wait and "ld.global" in ptx[:wait] and "st.global" not in ptx[:wait]
    assert len(kernel.reads) == 1 or "ld.global" in ptx[wait:]


@pytest.mark.parametrize("name", ["softmax_row", "column_sums", "whole_sum", "pointwise_ragged"])
def test_the_next_kernel_may_begin_early_only_if_this_one_loads_ahead_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "MULTIPROCESSORS", 0)
    made, limits = CASES[name]().kernel, replace(WITHOUT_A_GPU, longest_row=16, longest_block=64)
    for steady in (frozenset(), frozenset(made.reads)):
        kernel = replace(made, steady=steady)
        lines = triton_source(kernel, tile=next(candidates(kernel, limits))).code.splitlines()
        begun, wait, loop = (
            next((i for i, line in enumerate(lines) if what in line), None)
            for what in ("dependents", "gdc_wait", "_start in ")
        )
        assert wait is not None
        if any("tl.load" in line for line in lines[:wait]):
            assert begun is not None and begun < wait, (steady, lines)
        elif loop is not None:
            assert begun is not None and begun > loop > wait, (steady, lines)
        else:  # as it ends
            assert begun is None, (steady, lines)


def test_the_next_kernel_may_begin_early_if_this_one_has_few_programs() -> None:
    begun = []
    for name in ("pointwise_ragged", "softmax_row"):
        kernel = replace(CASES[name]().kernel, steady=frozenset())
        code = triton_source(kernel).code
        begun.append("dependents" in code and code.index("dependents") < code.index("gdc_wait"))
    assert begun == [True, True]
    var = fresh_var("i", 1 << 20)
    buffers = {name: Buffer(name, (var.size,), (1,), F32, kernel.device) for name in "xy"}
    store = Store("y", Index.of(var), load("x", Index.of(var), F32))
    copy = Kernel((var,), (), [store], kernel.device, name="copy_0", buffers=buffers, steady=frozenset())
    assert "dependents" not in triton_source(copy).code


@pytest.mark.parametrize("name", ["floats_32", "floats_64"])
@pytest.mark.timeout(120)
def test_every_float_operation_compiles(name: str) -> None:
    assert machine_code([triton_source(CASES[name]().kernel)])[0].cubin


def test_equal_kernels_compile_once() -> None:
    first, second = (triton_source(_softmax(name, 64, 512, BF16).kernel) for name in ("softmax_1", "softmax_2"))
    assert first.key == second.key and first.name != second.name
    a, b = machine_code([first, second])
    assert a is b


def test_the_collector_rests_while_kernels_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from framejit.backends.fuse.triton import compile as compiling

    seen: list[bool] = []
    monkeypatch.setattr(compiling, "_compiled", lambda source, capability: seen.append(gc.isenabled()))
    machine_code([triton_source(_softmax("s", 64, 512, BF16).kernel)])
    assert seen == [False] and gc.isenabled()


@pytest.mark.parametrize("entries", [[], ["triton-0"], ["llvm-0"]])
def test_what_is_expected_is_got_ready_unless_it_will_not_be_needed(entries: list[str], tmp_path: pathlib.Path) -> None:
    for name in entries:
        (tmp_path / name).touch()
    program = """
import sys
from framejit.backends.fuse.cache.kernel_cache import expect_gpu_kernels
from framejit.backends.fuse.triton.preload import preload
expect_gpu_kernels()
if begun := preload.cache_info().currsize:
    preload().join()
print(bool(begun), "libtriton" in open("/proc/self/maps").read(), "triton" in sys.modules)
"""
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(tmp_path)}
    done = forked.run(["-c", program], env=environment, timeout=300)
    wanted = "triton-0" not in entries
    assert done.stdout.split() == [str(wanted), str(wanted), "False"], done.stderr


def test_key_tells_kernels_apart() -> None:
    keys = {
        triton_source(_softmax("s", 64, columns, dtype).kernel).key for columns in (512, 256) for dtype in (BF16, F32)
    }
    assert len(keys) == 4


def test_source_tells_where_it_comes_from() -> None:
    source = triton_source(_softmax("softmax", 64, 512, BF16).kernel)
    assert source.text.startswith("# softmax.py:1\n") and "in_ptr0 is x: bfloat16[64, 512]" in source.text
    assert "softmax.py" not in source.code  # else equal kernels would differ


def _large(sizes: tuple[int, int]) -> Kernel:
    i, j = (Var(name, size) for name, size in zip("ij", sizes))
    buffers = {name: Buffer(name, sizes, (sizes[1], 1), BF16, torch.device("cuda")) for name in "xo"}
    case = Build((i, j))
    value = case.read("x", torch.empty(1, 1, dtype=BF16).as_strided((1, 1), (sizes[1], 1)), i, j)
    return Kernel(
        (i, j), (), [Store("o", Index.of(i) * sizes[1] + j, op("neg", value))], torch.device("cuda"), name="neg",
        buffers=buffers,
    )


def test_indices_beyond_31_bits_take_64() -> None:
    assert "int64" in triton_source(_large((1 << 16, 1 << 16))).code
    assert "int64" not in triton_source(_large((1 << 12, 1 << 12))).code


def test_loads_are_16_bytes_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the figures stand on: a kernel that loads 2 bytes at a time reaches a fraction of the memory's speed."""
    from framejit.backends.fuse.triton import compile as compiling

    texts: list[str] = []
    monkeypatch.setattr(compiling, "_parameters", lambda ptx: texts.append(ptx) or 0)
    for kernel in (
        _large((1 << 12, 1 << 12)), _softmax("softmax", 64, 4096, BF16).kernel, _large((1001, 1000)),
        _large((1001, 1001)),
    ):
        machine_code([triton_source(kernel)])
    assert len(texts) == 4 and all(re.search(r"ld\.global\S*\.v4\.b32", text) for text in texts)


def test_what_is_rounded_may_be_quick_and_nothing_else() -> None:
    n = Var("n", 64)
    case = Build((n,))
    v = case.read("x", torch.randn(64).bfloat16(), n)
    rounded, kept, compared = op("exp", v), op("sigmoid", v), op("exp2", v)
    case.write("a", torch.empty(64, dtype=BF16), rounded, n)
    case.write("b", torch.empty(64), kept, n)
    case.write("c", torch.empty(64, dtype=BF16), op("where", op("gt", compared, const(1.0, F32)), v, rounded), n)
    quick = Analysis(case.case("quick").kernel).quick
    assert rounded in quick and kept not in quick and compared not in quick


@pytest.mark.parametrize("kind", ["max", "min"])
def test_what_the_greatest_is_found_in_is_computed_as_a_backward_computes_it_again(kind: str) -> None:
    n, r = Var("n", 4), Var("r", 64)
    case = Build((n,), (r,))
    element = op("exp", case.read("x", torch.randn(4, 64).bfloat16(), n, r))
    case.write("a", torch.empty(4, dtype=BF16), reduce(kind, element), n)
    assert element not in Analysis(case.case("greatest").kernel).quick


def test_sum_of_a_long_softmax_takes_one_pass() -> None:
    kernel = _softmax("long", 4, 200000, F32, torch.empty(4, 200000)).kernel
    assert Analysis(kernel).passes == 3 and Analysis(kernel, online=True).passes == 2
    tile = next(candidates(kernel))
    assert tile.looped and tile.online and triton_source(kernel, tile=tile).code.count("for r_start") == 2


def _statistics(rows: int, columns: int, normalised: bool = False) -> Kernel:
    """The greatest element of each row with the sum of the exponentials, as cross_entropy needs them, or the row
    divided by its sum of squares."""
    r, c = Var("r", rows), Var("c", columns)
    case = Build((r,), (c,))
    v = case.read("x", torch.empty(1, 1, dtype=BF16).as_strided((1, 1), (columns, 1)), r, c)
    if normalised:
        case.stores.append(Store("o", Index.of(r) * columns + c, op("div", v, reduce("sum", op("mul", v, v))), True))
        buffers = {"o": Buffer("o", (rows, columns), (columns, 1), BF16, torch.device("cuda"))}
    else:
        top = reduce("max", v)
        case.stores += [
            Store("m", Index.of(r), top),
            Store("s", Index.of(r), reduce("sum", op("exp", op("sub", v, top)))),
        ]
        buffers = {name: Buffer(name, (rows,), (1,), F32, torch.device("cuda")) for name in "ms"}
    buffers["x"] = Buffer("x", (rows, columns), (columns, 1), BF16, torch.device("cuda"))
    return Kernel((r,), (c,), case.stores, torch.device("cuda"), name="statistics", buffers=buffers)


@pytest.mark.parametrize(("columns", "normalised", "looped"), [
    (4096, False, False), (8192, False, False), (8208, False, True), (32000, False, True), (16384, True, False),
    (32000, True, True),
])
def test_only_rows_that_several_can_be_held_of_are_held(columns: int, normalised: bool, looped: bool) -> None:
    tile = next(candidates(_statistics(16384, columns, normalised)))
    assert tile.looped == looped and (not looped or tile.online)
    if not normalised and looped:
        assert str(tile) == "x1 x r512 x v8, 4 warps looped online"


@pytest.mark.parametrize(("rows", "columns"), [(1, 16384), (3, 16384)])
def test_few_rows_are_read_by_many_threads_at_once(rows: int, columns: int) -> None:
    r, c = Var("r", rows), Var("c", columns)
    case = Build((r,), (c,))
    case.write("o", torch.empty(rows), reduce("sum", case.read("x", torch.empty(rows, columns), r, c)), r)
    tile = next(candidates(case.case("sum").kernel))
    assert tile.warps == 32 and not tile.looped


def test_few_long_columns_are_shared_among_programs() -> None:
    i, j = Var("i", 60000), Var("j", 1024)
    case = Build((j,), (i,))
    case.write(
        "o", torch.empty(1024), reduce("sum", case.read("x", torch.empty(1, 1).as_strided((1, 1), (1024, 1)), i, j)), j
    )
    tile = next(candidates(case.case("sum").kernel))
    assert tile.programs == 128 and tile.warps == 32


def test_reduction_over_nothing_gives_what_changes_nothing() -> None:
    r, c = Var("r", 4), Var("c", 0)
    case = Build((r,), (c,))
    case.write("o", torch.zeros(4), reduce("sum", case.read("x", torch.empty(4, 0), r, c)), r)
    source = triton_source(case.case("empty").kernel)
    assert machine_code([source])[0].cubin


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool])
def test_what_is_supported_can_be_written(dtype: torch.dtype) -> None:
    for name, (arity, _) in OPERATIONS.items():
        if supports(name, dtype):
            assert operation(name, ["a", "b", "c"][:arity], dtype)
            assert operation(name, ["a", "b", "c"][:arity], dtype, quick=True)


def test_what_is_not_supported() -> None:
    assert not supports("exp", torch.int64) and not supports("add", torch.bool) and not supports("add", torch.complex64)
    assert not supports("shl", F32) and not supports("reduce_sum", BF16) and not supports("conjugate", F32)


def test_device_functions_exist() -> None:
    from framejit.backends.fuse.triton import device

    assert all(callable(getattr(device, name)) or hasattr(getattr(device, name), "fn") for name in DEVICE_FUNCTIONS)
