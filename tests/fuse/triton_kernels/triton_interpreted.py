"""Run every case of triton_cases.py, with its first and its last tile, one for few programs, and as a kernel that waits
for the one before, through Triton's interpreter; print what fails as JSON.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""
from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from triton.language.extra import cuda

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[3]))
import tests.fuse.triton_kernels.triton_scan_cases  # noqa: F401  (adds its cases)
from framejit.backends.fuse.triton.compile import jit_function
from framejit.backends.fuse.triton.kernel_source import triton_source
from framejit.backends.fuse.triton.tiles.block_limits import WITHOUT_A_GPU
from framejit.backends.fuse.triton.tiles.blocks import candidates
from framejit.backends.fuse.triton.tiles.tile import Tile
from tests.fuse.triton_kernels import triton_standins
from tests.fuse.triton_kernels.triton_cases import CASES, Case


def waiting(case: Case, tile: Tile, which: int) -> Tile:
    """A tile of the case's kernel as one that waits, where every other buffer that is read need not be waited for."""
    steady = frozenset([name for name in case.kernel.reads if name not in case.expected][which::2])
    return replace(tile, kernel=replace(tile.kernel, steady=steady))


@contextmanager
def other_contents_before(tile: Tile, tensors: dict[str, torch.Tensor], code: str) -> Iterator[None]:
    """Have a program find other bits in what it is to wait for, until it has waited: each, where it first lets others
    begin, else the first."""
    kernel = tile.kernel
    names = [name for name in kernel.reads if name not in (kernel.steady or ()) and name not in kernel.writes]
    waited_for = [torch.tensor([], dtype=torch.uint8).set_(tensors[name].untyped_storage()) for name in names]
    contents = {"waited": [memory.clone() for memory in waited_for], "begun": [memory ^ 0xA5 for memory in waited_for]}
    state = "before"

    def fill(new: str) -> None:
        nonlocal state
        state = new
        for memory, bits in zip(waited_for, contents[new]):
            memory.copy_(bits)

    def let_others_begin() -> None:
        if code.index("gdc_launch_dependents") < code.index("gdc_wait"):
            fill("begun")
        assert state == "begun" or state == "waited"

    cuda.gdc_launch_dependents, cuda.gdc_wait = let_others_begin, partial(fill, "waited")
    if kernel.steady is not None:
        fill("begun")
    yield
    assert state == ("before" if kernel.steady is None else "waited"), f"a program ends with {state}"


def run(case: Case, tile: Tile) -> None:
    source = triton_source(replace(case.kernel, steady=tile.kernel.steady), tile=tile)
    assert source.waits == (tile.kernel.steady is not None)
    tensors = {name: tensor.clone() for name, tensor in case.inputs.items()}
    for name, expected in case.expected.items():
        if name not in tensors:
            tensors[name] = torch.empty_strided(expected.size(), expected.stride(), dtype=expected.dtype).fill_(77)
    with jit_function(source) as function, other_contents_before(tile, tensors, source.code):
        function[source.grid](*(tensors[name] for name in source.buffers))
    for name, expected in case.expected.items():
        torch.testing.assert_close(
            tensors[name], expected, rtol=case.rtol, atol=case.atol, equal_nan=True,
            msg=lambda text, name=name: f"{name}: {text}",
        )


def main(names: list[str]) -> None:
    triton_standins.install()
    # loops over rows, without rows that take the interpreter minutes
    limits = replace(WITHOUT_A_GPU, longest_row=2048, longest_block=2048)
    failures: dict[str, list[str]] = {}
    for name in names or CASES:
        torch.manual_seed(0)
        case = CASES[name]()
        failures[name] = []
        tiles = list(candidates(case.kernel, limits))
        # whatever the tile, a kernel may also be run by few programs that go through many blocks
        resident = replace(tiles[0], resident=2, stages=2, streamed=True, hints=True)
        own = [*dict.fromkeys((tiles[0], tiles[-1], resident))]
        for tile in (*own, *(waiting(case, tile, which) for which, tile in enumerate(own[:2]))):
            try:
                run(case, tile)
            except Exception:
                failures[name].append(f"{tile}\n{traceback.format_exc()}")
    json.dump(failures, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
