"""CUDA kernels of a plan: what the driver is given, checked with a driver made for the test, and on a device where
there is one."""

from __future__ import annotations

import ctypes
import threading

import pytest
import torch
import triton
import triton.language as tl
from fake_cuda import fake_driver  # noqa: F401  (a fixture)
from triton.backends.compiler import GPUTarget

from framejit import _native as native
from framejit._native import Plan, Value
from framejit.guards import tensor_layout  # noqa: F401  (measures where tensors keep their metadata, which plans need)

PLANS = """
from framejit._native import Plan, Value

def plan(*args, grid=(2, 3, 4), device=0, function=7, waits=False):
    args = args or (("p", 1), ("p", 0), ("i32", 4), ("f32", 0.5), ("i64", 2**40), ("f64", 0.25), ("null",))
    empty = ("empty", 1, (4,), (1,), torch.float32, torch.device("cpu"))
    steps = [empty, ("cuda_kernel", function, grid, 128, 2048, args, device, waits)]
    return Plan(1, 2, steps, [Value(1)], fallback=print, name="mine")

x = torch.arange(5.0)[1:]
"""


def test_arguments_arrive(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
(out,) = plan()(x)
assert torch.equal(out, (0.5 * x.double() + 2**40 + 0.25).float()), out
assert (list(launch().grid), list(launch().block), launch().shared) == ([2, 3, 4], [128, 1, 1], 2048)
assert launch().stream == 0x1000
plan(device=1)(x)
assert launch().stream == 0x1001
negative = (("p", 1), ("p", 0), ("i32", 4), ("f32", -1), ("i64", -3), ("f64", 1e-3), ("null",))
(out,) = plan(*negative)(x)
assert torch.equal(out, (-x.double() - 3 + 1e-3).float()), out
"""
    )


def test_a_kernel_that_waits_by_itself_is_launched_before_the_last_one_has_ended(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
run = plan()
run(x)
assert number("fake_overlapping") == 0
before = (list(launch().grid), list(launch().block), launch().shared, launch().stream)
(out,) = plan(waits=True)(x)
assert number("fake_overlapping") == 1
assert torch.equal(out, (0.5 * x.double() + 2**40 + 0.25).float()), out
assert (list(launch().grid), list(launch().block), launch().shared, launch().stream) == before
with pytest.raises(RuntimeError, match=r"'affine'.*CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
    plan(grid=(13, 1, 1), waits=True)(x)
"""
    )


def test_the_context_of_the_device_is_current_in_the_launch_and_only_there(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
zero, one = plan(), plan(device=1)
zero(x)
first = launch().context
one(x)
assert launch().context == first + 1 and fake.fake_current() is None
fake.cuCtxSetCurrent(first)
before = number("fake_contexts_set")
zero(x)
assert number("fake_contexts_set") == before and launch().context == first
one(x)
assert launch().context == first + 1 and fake.fake_current() == first
thread = threading.Thread(target=lambda: zero(x))
thread.start(); thread.join()
assert launch().context == first
"""
    )


def test_errors_name_the_kernel_and_the_error(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
with pytest.raises(RuntimeError, match=r"'affine'.*CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"):
    plan(grid=(13, 1, 1))(x)
wrong = ("x", 1), ("p", 7), ("i32", 2**31), ("i32", 1.5), ("i64", 2**63), ("f32", "a"), (), "p"
for args in [(each,) for each in wrong]:
    with pytest.raises((ValueError, TypeError, OverflowError)):
        plan(*args)
for device in (-1, 64):
    with pytest.raises(ValueError):
        plan(device=device)
with pytest.raises(RuntimeError, match="CUDA_ERROR_OTHER"):
    plan(device=2)
"""
    )


def test_an_empty_grid_is_not_launched(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
plan(grid=(0, 1, 1), function=1)(x)
"""
    )


def test_loading_a_kernel(fake_driver):  # noqa: F811
    fake_driver(
        PLANS
        + """
module, function, registers, local_bytes = native.cuda_load_module(b"image", "affine", 1024, 0)
assert (function, registers, local_bytes) == (7, 42, 16) and module
assert number("fake_shared_limit") == -1
native.cuda_load_module(b"image", "affine", 100_000, 0)
assert number("fake_shared_limit") == 100_000
assert fake.fake_current() is None and number("fake_unloads") == 0
for image, name, shared in ((b"other", "affine", 0), (b"image", "missing", 0), (b"image", "affine", 10**6)):
    with pytest.raises(RuntimeError, match=f"'{name}'.*CUDA_ERROR_OTHER"):
        native.cuda_load_module(image, name, shared, 0)
assert number("fake_loads") == 5 and number("fake_unloads") == 2
native.cuda_unload_module(module, 0)
assert number("fake_unloads") == 3
with pytest.raises(TypeError):
    native.cuda_load_module("image", "affine", 0, 0)
"""
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="the driver is there")
def test_without_a_driver_a_plan_with_a_cuda_kernel_is_refused():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(native.PlanUnsupported, match="driver"):
            Plan(0, 0, [("cuda_kernel", 1, (1, 1, 1), 32, 0, (), 0, False)], [], fallback=print)
    else:
        pytest.skip("the driver is there")


def affine(out, x, n, a, BLOCK):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * a + 1, at < n)


@pytest.mark.gpu
def test_a_kernel_on_a_device():
    major, minor = torch.cuda.get_device_capability(0)
    signature = {"out": "*fp32", "x": "*fp32", "n": "i32", "a": "fp32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(fn=triton.jit(affine), signature=signature, constexprs={"BLOCK": 128})
    compiled = triton.compile(source, target=GPUTarget("cuda", 10 * major + minor, 32))
    metadata = compiled.metadata
    module, function, registers, local_bytes = native.cuda_load_module(
        compiled.asm["cubin"], metadata.name, metadata.shared, 0
    )
    assert registers > 0 and local_bytes == 0
    device, n = torch.device("cuda", 0), 1000
    # triton's kernels end with two scratch pointers
    args = (("p", 1), ("p", 0), ("i32", n), ("f32", 0.5), ("null",), ("null",))
    grid, threads = ((n + 127) // 128, 1, 1), 32 * metadata.num_warps
    launch = ("cuda_kernel", function, grid, threads, metadata.shared, args, 0, False)
    run = Plan(1, 2, [("empty", 1, (n,), (1,), torch.float32, device), launch], [Value(1)], fallback=print)
    x = torch.randn(n, device=device)
    expected = x * 0.5 + 1
    torch.testing.assert_close(run(x)[0], expected)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    results: list[torch.Tensor] = []

    def in_another_thread() -> None:
        with torch.cuda.stream(stream):
            results.append(run(x)[0])

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    thread.join()
    stream.synchronize()
    torch.testing.assert_close(results[0], expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (captured,) = run(x)
    x.fill_(2)
    graph.replay()
    torch.testing.assert_close(captured, torch.full_like(x, 2))
    with pytest.raises(torch.OutOfMemoryError):
        Plan(0, 1, [("empty", 0, (2**50,), (1,), torch.float32, device)], [Value(0)], fallback=print)()
    native.cuda_unload_module(module, 0)
