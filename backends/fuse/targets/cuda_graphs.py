"""Capturing CUDA graphs on one GPU, with memory from torch's allocator."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from framejit import _native


class CudaRecorder:
    """Captures on one GPU. Graphs share one pool of memory: they run one behind the other, and what is in it need not
    outlive a launch. Where it must, a graph has a pool of its own.

    Whether a capture succeeds or fails, torch is left as it was. Its own class for graphs is not used for that: as of
    torch 2.11 it leaves the allocators as while capturing where a capture fails, and for as long as it captures, other
    threads can't draw random numbers. So a plan that draws some is not captured here: torch raises.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._index = device.index or 0
        self._pool: tuple[int, int] | None = None
        self._users = 0

    @classmethod
    def is_possible(cls) -> bool:
        """Whether this torch and its allocator have what capturing takes."""
        return (
            torch.version.hip is None
            and hasattr(torch._C, "_cuda_beginAllocateCurrentThreadToPool")
            and torch.cuda.get_allocator_backend() == "native"
        )

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        # torch's own come back after some: another thread could have the same one, and launch on it meanwhile
        return torch.cuda.ExternalStream(_native.cuda_new_stream(self._index), self.device)

    def is_capturing(self) -> bool:
        with torch.cuda.device(self.device):
            return torch.cuda.is_current_stream_capturing()

    def record(self, run: Callable[[], Any], is_alone: bool) -> tuple[_native.CudaGraph, Any]:
        with torch.cuda.stream(self._stream):
            # cuBLAS's workspace is to come from the pool, and not to be handed to others later
            torch._C._cuda_clearCublasWorkspaces()
            pool = self._use_pool(is_alone)
            try:
                try:
                    graph, result = self._capture(run)
                finally:
                    torch._C._cuda_clearCublasWorkspaces()
                    torch._C._cuda_endAllocateToPool(self._index, pool)
            except BaseException:
                self._leave_pool(pool, is_alone)
                raise
        weakref.finalize(graph, self._leave_pool, pool, is_alone).atexit = False
        return graph, result

    def _capture(self, run: Callable[[], Any]) -> tuple[_native.CudaGraph, Any]:
        graph = _native.CudaGraph(self._stream.cuda_stream, self._index)
        try:
            result = run()
            graph.end()
        except BaseException:
            graph.abandon()
            raise
        return graph, result

    def _use_pool(self, is_alone: bool) -> tuple[int, int]:
        """Have this thread allocate in the common pool or a new one. The allocator drops a pool that nobody uses any
        more, so that another one is begun then."""
        pool = torch.cuda.graph_pool_handle() if is_alone or self._pool is None else self._pool
        torch._C._cuda_beginAllocateCurrentThreadToPool(self._index, pool)
        if not is_alone:
            self._pool = pool
            self._users += 1
        return pool

    def _leave_pool(self, pool: tuple[int, int], is_alone: bool) -> None:
        if not is_alone:
            self._users -= 1
            if not self._users:
                self._pool = None
        torch._C._cuda_releasePool(self._index, pool)
