"""Run every case of triton_cases.py, with its first and its last tile and one for few programs, through Triton's
interpreter; print what fails as JSON.

A program of its own: TRITON_INTERPRET must be set before Triton is imported.
"""
from __future__ import annotations

import json
import sys
import traceback
from dataclasses import replace
from pathlib import Path

import torch

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


def run(case: Case, tile: Tile) -> None:
    source = triton_source(case.kernel, tile=tile)
    tensors = {name: tensor.clone() for name, tensor in case.inputs.items()}
    for name, expected in case.expected.items():
        if name not in tensors:
            tensors[name] = torch.empty_strided(expected.size(), expected.stride(), dtype=expected.dtype).fill_(77)
    with jit_function(source) as function:
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
        for tile in dict.fromkeys((tiles[0], tiles[-1], resident)):
            try:
                run(case, tile)
            except Exception:
                failures[name].append(f"{tile}\n{traceback.format_exc()}")
    json.dump(failures, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
