"""Object code placed in memory without LLVM: what it computes, calls and lets go of, and what is left to LLVM."""
from __future__ import annotations

import ctypes
import gc
import math
import os
import platform
import sys
from pathlib import Path

import pytest
import torch

from framejit._native import processor_features
from framejit.backends.fuse.llvm import loaded_object
from framejit.backends.fuse.llvm.loaded_object import LoadedObject
from framejit.backends.fuse.llvm.object_code import compile_text
from framejit.backends.fuse.llvm.processor import address_of, processor_key

import forked

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="LLVM loads other processors' code"
)

TABLE = """
@primes = private constant [5 x i64] [i64 2, i64 3, i64 5, i64 7, i64 11]
@start = private constant double 0x3FE8000000000000, align 64
define i64 @prime(i64 %i) {
  %place = getelementptr [5 x i64], ptr @primes, i64 0, i64 %i
  %value = load i64, ptr %place
  ret i64 %value
}
define i64 @following(i64 %i) {
  %next = add i64 %i, 1
  %value = call i64 @prime(i64 %next)
  ret i64 %value
}
define double @started(double %x) {
  %from = load double, ptr @start
  %sum = fadd double %x, %from
  %scaled = fmul double %sum, 1.1
  ret double %scaled
}
"""
CALLS = """
declare double @hypot(double, double)
declare double @Sleef_log1pd1_purec_u10(double)
declare float @expf(float)
define double @length(double %x, double %y) {
  %z = call double @hypot(double %x, double %y)
  %e = fpext float 1.0 to double
  %narrow = fptrunc double %z to float
  %f = call float @expf(float %narrow)
  %wide = fpext float %f to double
  %sum = fadd double %z, %wide
  ret double %sum
}
"""
UNKNOWN = """
declare double @framejit_no_such_function(double)
define double @f(double %x) {
  %y = call double @framejit_no_such_function(double %x)
  ret double %y
}
"""
COUNTER = """
@count = internal global i64 40
define i64 @next() {
  %old = load i64, ptr @count
  %new = add i64 %old, 1
  store i64 %new, ptr @count
  ret i64 %new
}
"""


def function(loaded: LoadedObject, name: str, result: type, *arguments: type):
    return ctypes.CFUNCTYPE(result, *arguments)(loaded.address(name))


def test_constants_and_calls_within_a_file(no_llvm_loads):
    loaded = LoadedObject(compile_text(TABLE))
    prime = function(loaded, "prime", ctypes.c_int64, ctypes.c_int64)
    following = function(loaded, "following", ctypes.c_int64, ctypes.c_int64)
    assert [prime(i) for i in range(5)] == [2, 3, 5, 7, 11]
    assert [following(i) for i in range(4)] == [3, 5, 7, 11]
    assert function(loaded, "started", ctypes.c_double, ctypes.c_double)(0.5) == 1.25 * 1.1


def test_functions_of_libraries(no_llvm_loads):
    loaded = LoadedObject(compile_text(CALLS))
    length = function(loaded, "length", ctypes.c_double, ctypes.c_double, ctypes.c_double)
    assert length(3.0, 4.0) == 5.0 + torch.tensor(5.0).exp().item() == pytest.approx(5 + math.exp(5))


def test_the_address_is_that_of_the_name():
    loaded = LoadedObject(compile_text(TABLE))
    assert len({loaded.address(name) for name in ("prime", "following", "started")}) == 3
    for name in ("", "primes_", "hypot", "_GLOBAL_OFFSET_TABLE_"):
        with pytest.raises(KeyError, match=f"^'{name}'$"):
            loaded.address(name)
    with pytest.raises(KeyError):  # what it calls is not what it has
        LoadedObject(compile_text(CALLS)).address("hypot")


def test_code_is_gone_with_its_object():
    def pages() -> int:
        return sum("r-xp" in line for line in Path("/proc/self/maps").read_text().splitlines())

    code = compile_text(TABLE)
    before = pages()
    loaded = [LoadedObject(code) for _ in range(20)]
    assert pages() > before
    del loaded
    gc.collect()
    assert pages() <= before


def test_nothing_stays_writable():
    loaded = LoadedObject(compile_text(TABLE))
    address = loaded.address("prime")
    [line] = [
        line for line in Path("/proc/self/maps").read_text().splitlines()
        for begin, end in [[int(bound, 16) for bound in line.split()[0].split("-")]] if begin <= address < end
    ]
    assert line.split()[1] == "r-xp"


def test_a_call_of_what_is_not_there():
    with pytest.raises(RuntimeError, match="calls 'framejit_no_such_function', which is not in this process"):
        LoadedObject(compile_text(UNKNOWN))


def test_memory_that_code_writes_is_left_to_llvm():
    loaded = LoadedObject(compile_text(COUNTER))
    following = function(loaded, "next", ctypes.c_int64)
    assert [following(), following(), following()] == [41, 42, 43]


@pytest.mark.parametrize("code", [b"", b"no object code", bytes(200)])
def test_what_is_no_object_code(code):
    with pytest.raises(RuntimeError):
        LoadedObject(code)


def test_torn_object_code():
    """Cut off at whatever byte: nothing is read or written beyond it, and LLVM, which would be, is not asked."""
    code = compile_text(CALLS)
    for end in range(8, len(code), 3):
        with pytest.raises(RuntimeError, match="object code is torn"):
            LoadedObject(code[:end])


def test_addresses():
    library = ctypes.CDLL(None)
    assert address_of("memset") == ctypes.cast(library.memset, ctypes.c_void_p).value
    assert address_of("Sleef_expf8_u10") or address_of("Sleef_expf4_u10")
    assert address_of("framejit_no_such_function") is None


def test_the_key_of_a_processor_is_the_same_in_each_process():
    assert processor_features() == processor_features()
    program = "from framejit.backends.fuse.llvm.processor import processor_key; print(processor_key())"

    def key(**environment: str) -> str:
        done = forked.run(["-c", program], env={**os.environ, **environment}, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert key() == processor_key() != key(ATEN_CPU_CAPABILITY="default")


@pytest.fixture
def no_llvm_loads(monkeypatch):
    def left(code):
        raise AssertionError("left to LLVM")

    monkeypatch.setattr(loaded_object, "_LeftToLlvm", left)
