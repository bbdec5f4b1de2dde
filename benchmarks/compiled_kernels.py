"""Kernels of ours on a GPU without a plan around them: made of a function, launched by the driver, timed in a CUDA
graph."""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

ROUNDS = 5


def kernels_for(
    function: Callable[..., torch.Tensor], sizes: Sequence[Sequence[int]], dtype: torch.dtype
) -> list[Any]:
    """The steps of a function of tensors of these sizes, x0, x1, ..., as the schedule gives them."""
    from framejit.backends.fuse.graph.passes.pipeline import run_passes
    from framejit.backends.fuse.graph.record import record_graph
    from framejit.backends.fuse.lowering.lower_graph import lower_graph
    from framejit.backends.fuse.lowering.whole import keeps
    from framejit.backends.fuse.schedule.make_kernels import schedule

    graph = fx.Graph()
    nodes = [graph.placeholder(f"x{position}") for position in range(len(sizes))]
    with FakeTensorMode():
        fakes = [torch.empty(size, dtype=dtype, device="cuda") for size in sizes]
    for node, fake in zip(nodes, fakes):
        node.meta["val"] = fake
    graph.output((graph.call_function(function, tuple(nodes)),))
    gm = fx.GraphModule(torch.nn.Module(), graph)
    return schedule(lower_graph(run_passes(record_graph(gm, fakes, keeps, None), gm, fakes), False))


class Launcher:
    """A compiled kernel, launched by the driver."""

    def __init__(self, source: Any, binary: Any, driver: ctypes.CDLL) -> None:
        from framejit.backends.fuse.targets.cuda import GpuModule

        self.source, self.binary, self.driver = source, binary, driver
        self.module = GpuModule.of(source.key, binary, torch.cuda.current_device())

    def __call__(self, buffers: dict[str, torch.Tensor]) -> None:
        pointers = [ctypes.c_void_p(buffers[name].data_ptr()) for name in self.source.buffers]
        pointers += [ctypes.c_void_p(0)] * self.binary.scratch
        arguments = (ctypes.c_void_p * len(pointers))(*(ctypes.addressof(pointer) for pointer in pointers))
        failed = self.driver.cuLaunchKernel(
            ctypes.c_void_p(self.module.function), *self.source.grid, self.binary.threads, 1, 1,
            self.binary.shared_bytes, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream), arguments, None,
        )
        if failed:
            raise RuntimeError(f"cuLaunchKernel gives {failed}")


def run_all(launchers: Sequence[Launcher], buffers: dict[str, torch.Tensor]) -> None:
    for launcher in launchers:
        launcher(buffers)


def seconds_a_launch(launches: Sequence[Callable[[], Any]]) -> float:
    """Seconds a launch, from a graph of all of them."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        launches[0]()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for launch in launches:
                launch()
        graph.replay()
        found = []
        for _ in range(ROUNDS):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end) / 1e3 / len(launches))
    return statistics.median(found)
