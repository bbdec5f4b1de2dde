"""Generated kernels compile to machine code for sm_90 without a GPU, and what the plan is told about them is so."""
from __future__ import annotations

import pathlib
import re
import sys

import pytest
import torch

pytest.importorskip("triton")
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from triton_cases import CASES, Build, _softmax  # noqa: E402

from framejit.backends.fuse.expr import OPERATIONS, const, op, reduce  # noqa: E402
from framejit.backends.fuse.index import Index, Var  # noqa: E402
from framejit.backends.fuse.ir import Buffer, Kernel, Store  # noqa: E402
from framejit.backends.fuse.triton import blocks  # noqa: E402
from framejit.backends.fuse.triton.blocks import candidates  # noqa: E402
from framejit.backends.fuse.triton.compile import compile_gpu_kernels  # noqa: E402
from framejit.backends.fuse.triton.levels import Levels  # noqa: E402
from framejit.backends.fuse.triton.operations import operation  # noqa: E402
from framejit.backends.fuse.triton.source import DEVICE_FUNCTIONS, triton_source  # noqa: E402
from framejit.backends.fuse.triton.support import supports  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("floats_32", "floats_64")])
def test_compiles_for_sm_90(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LONGEST_ROW", 2048)
    monkeypatch.setattr(blocks, "LONGEST_BLOCK", 2048)
    source = triton_source(CASES[name]().kernel)
    (binary,) = compile_gpu_kernels([source], 90)
    assert binary.cubin[:4] == b"\x7fELF" and binary.name.encode() in binary.cubin
    assert binary.threads == 32 * source.warps and binary.pointers == len(source.buffers)
    assert 0 <= binary.scratch <= 3
    assert binary.arguments(range(binary.pointers))[-1:] == ((("null",),) if binary.scratch else (("p", binary.pointers - 1),))


@pytest.mark.parametrize("name", ["floats_32", "floats_64"])
@pytest.mark.timeout(120)
def test_every_float_operation_compiles(name: str) -> None:
    assert compile_gpu_kernels([triton_source(CASES[name]().kernel)], 90)[0].cubin


def test_equal_kernels_compile_once() -> None:
    first, second = (triton_source(_softmax(name, 64, 512, BF16).kernel) for name in ("one", "two"))
    assert first.key == second.key and first.name != second.name
    a, b = compile_gpu_kernels([first, second], 90)
    assert a is b


def test_key_tells_kernels_apart() -> None:
    keys = {triton_source(_softmax("s", 64, columns, dtype).kernel).key for columns in (512, 256) for dtype in (BF16, F32)}
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
    return Kernel((i, j), (), [Store("o", Index.of(i) * sizes[1] + j, op("neg", value))], torch.device("cuda"), name="neg", buffers=buffers)


def test_indices_beyond_31_bits_take_64() -> None:
    assert "int64" in triton_source(_large((1 << 16, 1 << 16))).code
    assert "int64" not in triton_source(_large((1 << 12, 1 << 12))).code


def test_loads_are_16_bytes_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the figures stand on: a kernel that loads 2 bytes at a time reaches a fraction of the memory's speed."""
    from framejit.backends.fuse.triton import compile as compiling

    texts: list[str] = []
    monkeypatch.setattr(compiling, "_parameters", lambda ptx: texts.append(ptx) or 0)
    for kernel in (_large((1 << 12, 1 << 12)), _softmax("softmax", 64, 4096, BF16).kernel):
        compile_gpu_kernels([triton_source(kernel)], 90)
    assert len(texts) == 2 and all(re.search(r"ld\.global\S*\.v4\.b32", text) for text in texts)


def test_what_is_rounded_may_be_quick_and_nothing_else() -> None:
    n = Var("n", 64)
    case = Build((n,))
    v = case.read("x", torch.randn(64).bfloat16(), n)
    rounded, kept, compared = op("exp", v), op("sigmoid", v), op("exp2", v)
    case.write("a", torch.empty(64, dtype=BF16), rounded, n)
    case.write("b", torch.empty(64), kept, n)
    case.write("c", torch.empty(64, dtype=BF16), op("where", op("gt", compared, const(1.0, F32)), v, rounded), n)
    quick = Levels(case.case("quick").kernel).quick
    assert rounded in quick and kept not in quick and compared not in quick


def test_sum_of_a_long_softmax_takes_one_pass() -> None:
    kernel = _softmax("long", 4, 200000, F32, torch.empty(4, 200000)).kernel
    assert Levels(kernel).passes == 3 and Levels(kernel, online=True).passes == 2
    tile = next(candidates(kernel))
    assert tile.looped and tile.online and triton_source(kernel, tile).code.count("for r_start") == 2


def test_reduction_over_nothing_gives_what_changes_nothing() -> None:
    r, c = Var("r", 4), Var("c", 0)
    case = Build((r,), (c,))
    case.write("o", torch.zeros(4), reduce("sum", case.read("x", torch.empty(4, 0), r, c)), r)
    source = triton_source(case.case("empty").kernel)
    assert compile_gpu_kernels([source], 90)[0].cubin


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
