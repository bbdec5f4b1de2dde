"""Kernels are compiled once on a machine: a second process finds them, runs the same code, and gets the same
results."""
import os
import pathlib
import textwrap

import pytest
import torch

import framejit
from framejit import events
from framejit.backends.fuse.cache import disk_cache, kernel_cache
from framejit.backends.fuse.cache.kernel_cache import begun_gpu_binaries, cpu_object
from framejit.backends.fuse.cache.kernel_record import pack
from framejit.backends.fuse.llvm import object_code
from framejit.backends.fuse.triton import compile as triton_compile
from framejit.backends.fuse.triton.compile import GpuBinary
from framejit.backends.fuse.triton.kernel_source import TritonSource

import forked

PROGRAM = """
import torch, framejit
from framejit import events
f = framejit.optimize(lambda x: torch.nn.functional.gelu(x).sum(-1) + 1, backend="fuse")
torch.manual_seed(0)
print(f(torch.randn(64, 100)).double().sum().item())
print([event.hit for event in events.events("cache")])
"""

RETURNS_7 = "define i64 @seven() {\n  ret i64 7\n}\n"


@pytest.fixture
def folder(tmp_path):
    with framejit.config.patch(cache_dir=str(tmp_path / "cache"), keep_captures=False):
        yield tmp_path / "cache"


def process(folder: pathlib.Path, program: str = PROGRAM) -> list[str]:
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(folder), "FRAMEJIT_KEEP_CAPTURES": "0"}
    ran = forked.run(["-W", "error", "-c", textwrap.dedent(program)], env=environment, timeout=120)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def hits() -> list[tuple[str, bool]]:
    """Of kernels; whether the hash of framejit's own files was found depends on which test was first."""
    return [(event.what, event.hit) for event in events.events("cache") if event.what != "sources"]


# ---- CPU -----------------------------------------------------------------------------------------------


def test_a_second_process_finds_the_kernels_and_computes_the_same(folder):
    first, second = process(folder), process(folder)
    assert "True" not in first[1]
    assert "False" in first[1]
    assert "False" not in second[1]
    assert first[0] == second[0]


def test_what_was_compiled_before_makes_no_difference(folder):
    process(folder)
    before = (
        "import torch, framejit; framejit.optimize(lambda x: x.exp().sum(0) * x, backend='fuse')(torch.randn(20, 30)); "
        "framejit.events.hub.forget()\n"
    )
    assert "False" not in process(folder, before + PROGRAM)[1]


def test_damaged_kernels_are_compiled_again(folder):
    first = process(folder)
    for file in folder.iterdir():
        damaged = bytearray(file.read_bytes())
        damaged[len(damaged) // 2] ^= 1
        file.write_bytes(damaged)
    assert process(folder) == first


def test_without_a_usable_folder_programs_run(tmp_path):
    (tmp_path / "file").write_text("")
    environment = {**os.environ, "FRAMEJIT_CACHE_DIR": str(tmp_path / "file")}
    ran = forked.run(["-c", PROGRAM], env=environment, timeout=120)
    assert ran.returncode == 0
    assert ran.stderr.count("can't be kept") == 1


def test_object_code_is_compiled_once(folder, monkeypatch):
    code = cpu_object(RETURNS_7)
    monkeypatch.setattr(object_code, "compile_text", None)
    assert cpu_object(RETURNS_7) == code
    assert hits() == [("llvm", False), ("llvm", True)]


def test_other_text_and_another_processor_are_other_kernels(folder, monkeypatch):
    from framejit.backends.fuse.llvm import processor

    cpu_object(RETURNS_7)
    cpu_object(RETURNS_7.replace("7\n", "8\n"))
    features = bytearray(processor.processor_features())
    features[-1] ^= 1
    monkeypatch.setattr(processor, "processor_features", lambda: bytes(features))
    monkeypatch.setattr(processor, "processor_key", processor.processor_key.__wrapped__)
    cpu_object(RETURNS_7)
    assert hits() == [("llvm", False)] * 3


# ---- GPU -----------------------------------------------------------------------------------------------

CODE = """\
import triton
import triton.language as tl


@triton.jit
def kernel(p0, p1):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(p1 + i, tl.load(p0 + i) {operator} 2.0)
"""


def source(name: str = "doubled", operator: str = "*", warps: int = 4) -> TritonSource:
    signature = (("p0", "*fp32", True), ("p1", "*fp32", True))
    return TritonSource(name, CODE.format(operator=operator), "kernel", f"# {name}\n", ("x", "y"), signature, 1, warps)


@pytest.fixture
def compiled(monkeypatch):
    """Names of the kernels that are really compiled, by something quicker than Triton."""
    names = []

    def begun_gpu_kernels(sources, capability):
        names.extend(s.name for s in sources)
        return lambda: [
            GpuBinary(f"{s.code} {s.warps} {capability}".encode(), "kernel", 1, s.warps * 32, 2, 2) for s in sources
        ]

    monkeypatch.setattr(triton_compile, "begun_gpu_kernels", begun_gpu_kernels)
    return names


def test_gpu_kernels_come_back_as_they_were(folder):
    (made,) = begun_gpu_binaries([source()], 90)()
    assert made.cubin.startswith(b"\x7fELF")
    (found,) = begun_gpu_binaries([source()], 90)()
    assert found == made
    assert hits() == [("triton", False), ("triton", True)]


def test_only_what_is_missing_is_compiled_and_in_order(folder, compiled):
    sources = [source("a"), source("b", "+"), source("a_again"), source("c", "-")]
    begun_gpu_binaries(sources[:1], 90)()
    assert compiled == ["a"]
    binaries = begun_gpu_binaries(sources, 90)()
    assert compiled == ["a", "b", "c"]
    assert [binary.cubin for binary in binaries] == [f"{s.code} 4 90".encode() for s in sources]


def test_what_machine_code_depends_on_is_in_the_key(folder, compiled):
    for each, capability in ((source(), 90), (source(), 100), (source(warps=8), 90), (source(operator="+"), 90)):
        begun_gpu_binaries([each], capability)()
    assert len(compiled) == 4
    begun_gpu_binaries([source("of another name")], 90)()
    assert len(compiled) == 4


@pytest.mark.parametrize(
    "record",
    [
        b"", b"nonsense", pack({}, {}), pack({"name": "kernel"}, {"cubin": b""}),
        pack({"name": "kernel", "threads": None}, {"cubin": b""}),
    ],
)
def test_a_record_that_is_none_is_compiled_again(folder, compiled, monkeypatch, record):
    monkeypatch.setattr(kernel_cache, "pack", lambda fields, blobs: record)
    begun_gpu_binaries([source()], 90)()
    monkeypatch.undo()
    with framejit.config.patch(cache_dir=str(folder), keep_captures=False):
        assert disk_cache.current().info().entries == {"triton": 1}
        (binary,) = begun_gpu_binaries([source()], 90)()
    assert binary.cubin.startswith(b"\x7fELF")


def test_no_triton_is_imported_for_kernels_that_are_found(folder):
    program = """
    import sys
    from framejit.backends.fuse.cache.kernel_cache import begun_gpu_binaries
    from framejit.backends.fuse.triton.kernel_source import TritonSource
    pointers = ("p0", "*fp32", True), ("p1", "*fp32", True)
    begun_gpu_binaries([TritonSource("doubled", CODE, "kernel", "", ("x", "y"), pointers, 1, 4)], 90)()
    print("triton.compiler.compiler" in sys.modules)
    """.replace("CODE", repr(CODE.format(operator="*")))
    assert process(folder, program) == ["True"]
    assert process(folder, program) == ["False"]


def test_results_with_and_without_the_cache_are_equal(folder):
    def fn(x):
        return torch.softmax(x * 3, -1), (x.sin() + 1).sum(0)

    x = torch.randn(33, 77)
    with framejit.config.patch(cache_size=0):
        expected = framejit.optimize(fn, backend="fuse")(x)
    assert hits() == []
    for _ in range(2):
        framejit.reset()
        for wanted, got in zip(expected, framejit.optimize(fn, backend="fuse")(x)):
            assert torch.equal(wanted, got)
