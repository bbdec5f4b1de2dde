"""Kernels that Triton fails on: other tiles are tried, and what is raised names the kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pytest
import torch

pytest.importorskip("triton")
import framejit
from framejit.backends.fuse.not_fusable import KernelFailed
from framejit.backends.fuse.targets import cuda
from framejit.backends.fuse.targets.cuda import CudaTarget, GpuModule
from framejit.backends.fuse.triton.compile import GpuBinary
from framejit.backends.fuse.triton.kernel_source import TritonSource, triton_source
from framejit.backends.fuse.triton.tiles.blocks import candidates
from tests.fuse.triton_kernels.triton_cases import CASES


def compiling_by(binaries: Callable[..., list[Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "begun_gpu_binaries", lambda *args: partial(binaries, *args))


def test_a_gpu_kernel_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = CASES["softmax_row"]().kernel
    tried: list[str] = []

    def fail(sources: Sequence[TritonSource], capability: int) -> list[Exception]:
        tried.extend(source.key for source in sources)
        errors: list[Exception] = [RuntimeError("no such instruction") for _ in sources]
        for source, error in zip(sources, errors):
            error.add_note(f"while compiling the GPU kernel {source.name}")
        return errors

    compiling_by(fail, monkeypatch)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    with pytest.raises(KernelFailed, match=f"while compiling the GPU kernel {kernel.name}: no such instruction"):
        CudaTarget(torch.device("cuda", 0)).compile([kernel])
    assert len(tried) == len({*tried}) == sum(1 for _ in candidates(kernel)) > 1


def test_a_tile_that_fails_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Sequence[TritonSource]] = []

    def fail_once(sources: Sequence[TritonSource], capability: int) -> list[GpuBinary | Exception]:
        asked.append([*sources])
        binary = GpuBinary(b"code", "kernel", 0, 32, 2, 0)
        return [RuntimeError("no") if len(asked) == 1 and source.name == bad.name else binary for source in sources]

    good, bad = (CASES[name]().kernel for name in ("pointwise_large_and_odd", "softmax_row"))
    compiling_by(fail_once, monkeypatch)
    monkeypatch.setattr(GpuModule, "of", lambda key, binary, index: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    told: list[framejit.events.Event] = []
    unsubscribe = framejit.events.subscribe(told.append)
    try:
        launches = CudaTarget(torch.device("cuda", 0)).compile([good, bad])
    finally:
        unsubscribe()
    assert [[source.name for source in sources] for sources in asked] == [[good.name, bad.name], [bad.name]]
    tiles = candidates(bad)
    first, second = (triton_source(bad, tile=tile) for tile in islice(tiles, 2))
    assert asked[0][1].key == first.key and launches[1].text.key == second.key != first.key
    assert launches[0].text.key == asked[0][0].key
    (event,) = told
    assert (event.kind, event.kernel, event.error) == ("kernel_failed", bad.name, "RuntimeError: no")
