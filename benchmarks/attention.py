"""Attention of one query to a cache of keys and values on a GPU: kernels of ours against torch's, in one run, on caches
that no cache of the device holds.

    python benchmarks/attention.py [--tune] [--only 1x32x4x1024x64,...] [--dtype bfloat16] [--json FILE]

A shape is batch x heads x heads of the cache x keys x elements of a head. `torch` is what models of transformers do:
each head of the cache repeated for those that share it, and `scaled_dot_product_attention`; `gqa` is that with
`enable_gqa=True` and nothing repeated. `us` is microseconds a call, launched from a CUDA graph over several caches,
`bw` the share of what a copy reaches that reading each key and value once would take. `--tune` times all tiles.
Wanted: never slower than torch's.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from compiled_kernels import Launcher, kernels_for, run_all, seconds_a_launch
from measure import copy_ceiling, geometric_mean, use_empty_caches, write_json

SHAPES = (
    "1x32x4x128x64", "1x32x4x1024x64", "1x32x4x4096x64", "8x32x4x1024x64", "32x32x4x1024x64", "1x32x8x1024x128",
    "1x32x8x4096x128", "8x32x8x1024x128", "1x32x8x8192x128", "1x12x12x1024x64", "1x32x8x32768x128",
)
UNCACHED = 192 << 20
"""Bytes of caches to go round: several times what the cache of an H200 holds."""
FEWEST, MOST = 4, 64
"""Launches of a graph."""


def repeated(x: torch.Tensor, heads: int) -> torch.Tensor:
    batch, shared, keys, size = x.shape
    if shared == heads:
        return x
    return x[:, :, None].expand(batch, shared, heads // shared, keys, size).reshape(batch, heads, keys, size)


def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    heads = query.shape[1]
    return F.scaled_dot_product_attention(query, repeated(key, heads), repeated(value, heads))


def gqa(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)


def sizes_of(shape: str) -> list[tuple[int, ...]]:
    batch, heads, shared, keys, size = map(int, shape.split("x"))
    return [(batch, heads, 1, size), *[(batch, shared, keys, size)] * 2]


def ways(kernels: Sequence[Any], tune: bool) -> dict[str, list[Any]]:
    """By what is said of the tiles, the sources of the kernels; the first is the default."""
    from framejit.backends.fuse.triton.kernel_source import triton_source
    from framejit.backends.fuse.triton.tiles.block_limits import GpuLimits
    from framejit.backends.fuse.triton.tiles.blocks import candidates

    limits = GpuLimits.of_device(torch.cuda.current_device())
    tiles = [[*candidates(kernel, limits)] for kernel in kernels]
    first = [each[0] for each in tiles]
    chosen = [first]
    if tune:
        chosen += [[*first[:at], tile, *first[at + 1 :]] for at, each in enumerate(tiles) for tile in each[1:]]
    return {
        " | ".join(map(str, several)): [triton_source(*pair[:1], tile=pair[1]) for pair in zip(kernels, several)]
        for several in chosen
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="time all tiles, not only the default")
    parser.add_argument("--only", default=",".join(SHAPES), help="shapes (default: all)")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    options = parser.parse_args()
    use_empty_caches()
    from framejit.backends.fuse.targets.cuda import CudaTarget
    from framejit.backends.fuse.triton.compile import begun_gpu_kernels

    CudaTarget.attends = lambda self, *_: True  # whatever the rules say: this is what they are made of
    dtype = getattr(torch, options.dtype)
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    ceiling = copy_ceiling("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.dtype}, copy {ceiling / 1e9:.0f} GB/s")
    shapes = options.only.split(",")
    kernels = {shape: kernels_for(attention, sizes_of(shape), dtype) for shape in shapes}
    made = {shape: ways(kernels[shape], options.tune) for shape in shapes}
    major, minor = torch.cuda.get_device_capability()
    sources = [source for of_shape in made.values() for several in of_shape.values() for source in several]
    binaries = iter(begun_gpu_kernels(sources, 10 * major + minor)())
    compiled = {
        (shape, name): [(source, next(binaries)) for source in several]
        for shape, of_shape in made.items() for name, several in of_shape.items()
    }
    print(f"{'us':22} {'torch':>8} {'gqa':>8} {'ours':>8} {'bw':>5} {'times':>6}  tiles; others", flush=True)
    rows: list[dict[str, Any]] = []
    wrong = False
    for shape in shapes:
        sizes = sizes_of(shape)
        cached = 2 * torch.Size(sizes[1]).numel() * dtype.itemsize
        copies = min(MOST, max(FEWEST, -(-UNCACHED // cached)))
        query = torch.randn(sizes[0], device="cuda", dtype=dtype)
        sets = [(query, *(torch.randn(size, device="cuda", dtype=dtype) for size in sizes[1:])) for _ in range(copies)]
        theirs = {f.__name__: seconds_a_launch([partial(f, *given) for given in sets]) for f in (attention, gqa)}
        exact = attention(*(x.double() for x in sets[0]))
        eager = (attention(*sets[0]).double() - exact).norm()
        ours: dict[str, float] = {}
        for name in made[shape]:
            pairs = compiled[shape, name]
            failed = [binary for _, binary in pairs if isinstance(binary, Exception)]
            if failed:
                print(f"{shape} {name}: {type(failed[0]).__name__}: {failed[0]}"[:200])
                continue
            launchers = [Launcher(source, binary, driver) for source, binary in pairs]
            out = torch.full(exact.shape, torch.nan, dtype=dtype, device="cuda")
            between = {
                name: torch.empty(buffer.extent, dtype=buffer.dtype, device="cuda")
                for kernel in kernels[shape] for name, buffer in kernel.buffers.items() if buffer.input is None
            }
            between[kernels[shape][-1].writes[-1]] = out
            buffers = [
                {**between, **{f"x{position}": x for position, x in enumerate(given)}} for given in sets
            ]
            ours[name] = seconds_a_launch([partial(run_all, launchers, given) for given in buffers])
            run_all(launchers, buffers[0])
            error = (out.double() - exact).norm()
            if not error <= max(1.05 * eager, 1e-6 * exact.norm()):
                wrong = True
                print(f"{shape} {name}: error {error / exact.norm():.1e}, eager {eager / exact.norm():.1e}")
        default = next(iter(made[shape]))
        best = min(theirs.values())
        line = f"{shape:22} {theirs['attention'] * 1e6:8.2f} {theirs['gqa'] * 1e6:8.2f} "
        if default in ours:
            line += f"{ours[default] * 1e6:8.2f} {cached / ceiling / ours[default]:5.2f} {best / ours[default]:6.2f}  "
        others = sorted((seconds, name) for name, seconds in ours.items() if name != default)
        print(line + default + "".join(f"\n{'':40}{s * 1e6:8.2f}  {name}" for s, name in others), flush=True)
        rows.append({"shape": shape, "torch_s": theirs, "ours_s": ours, "default": default, "read_bytes": cached})
    mean = geometric_mean(
        min(row["torch_s"].values()) / row["ours_s"][row["default"]] for row in rows if row["default"] in row["ours_s"]
    )
    print(f"geometric mean: {mean or 0:.2f} times as fast as the quicker of torch's")
    write_json(options.json, {"copy_bytes_per_s": ceiling, "dtype": options.dtype}, rows, speed=mean)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
