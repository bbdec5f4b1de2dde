"""Capturing CUDA graphs, by way of torch: its allocator and its generators have to know."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any

import torch

from framejit.backends.fuse.launches.recorder import Recording


class CudaRecorder:
    """Captures on one GPU. All graphs share one pool of memory: they run one behind the other, and what is in it need
    not outlive a launch."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)

    @cached_property
    def _pool(self) -> Any:
        return torch.cuda.graph_pool_handle()

    def is_capturing(self) -> bool:
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def record(self, run: Callable[[], Any]) -> tuple[Recording, Any]:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.stream(self._stream):
            # cuBLAS's workspace is to come from the pool, and not to be handed to others later
            torch._C._cuda_clearCublasWorkspaces()
            self._begin(graph)
            try:
                result = run()
                graph.capture_end()
            except BaseException:
                self._leave(graph)
                raise
            finally:
                torch._C._cuda_clearCublasWorkspaces()
        graph.instantiate()
        replay = partial(torch._C._CUDAGraph.replay, graph)
        return Recording(graph.raw_cuda_graph_exec(), replay), result

    def _begin(self, graph: torch.cuda.CUDAGraph) -> None:
        graph.capture_begin(self._pool, capture_error_mode="thread_local")

    def _leave(self, graph: torch.cuda.CUDAGraph) -> None:
        """End a capture that failed. Where the driver refuses the graph, torch's own end leaves its allocator and its
        generator as in a capture: the generator is put right by the end of another."""
        try:
            graph.capture_end()
        except Exception:
            with suppress(Exception):
                torch._C._cuda_endAllocateToPool(self.device.index or 0, self._pool)
            some, other = torch.zeros(1, device=self.device), torch.cuda.CUDAGraph()
            with suppress(Exception):
                self._begin(other)
                some.zero_()
                other.capture_end()
