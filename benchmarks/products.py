"""Matrix products with few rows on a GPU: loops of ours against cuBLAS, in one run, on matrices that no cache holds.

    python benchmarks/products.py [--tune] [--rows 1,2,4,8,16] [--only 2048x5632,...] [--seconds 130] [--json FILE]

A shape is inner x columns, as of `F.linear`. `us` is microseconds a product, launched from a CUDA graph over copies of
the matrix that are together larger than the cache; `bw` the share of what a copy reaches that reading matrix, rows and
result alone would take. `plain` is the product, `residual` the product added to a row, `gate` is
`silu(x @ gate) * (x @ up)`, `norm` that of `rms_norm(x)`; cuBLAS is given the operations of torch around it. `--tune`
prints all tiles that may be worth trying, too; the norm is `inside` the product or `apart`. Wanted: 0.85 of the
bandwidth, and cuBLAS never quicker.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from compiled_kernels import Launcher, kernels_for, run_all, seconds_a_launch
from measure import copy_ceiling, geometric_mean, use_empty_caches, write_json

SHAPES = {
    "2048x2048": (2048, 2048), "2048x256": (2048, 256), "2048x5632": (2048, 5632), "5632x2048": (5632, 2048),
    "2048x32000": (2048, 32000), "4096x4096": (4096, 4096), "4096x14336": (4096, 14336),
    "14336x4096": (14336, 4096),
}
"""Of decoders of 1.1 and of 8 billion parameters."""
TUNED: dict[int, tuple[str, ...]] = {
    1: ("2048x2048", "2048x5632", "5632x2048"), 2: ("2048x5632", "4096x14336"),
    4: ("2048x2048", "2048x5632", "4096x14336"), 8: ("2048x5632", "4096x14336"),
}
"""By numbers of rows, the shapes that all tiles are tried on."""
UNCACHED = 192 << 20
"""Bytes of matrices to go round: several times what the cache of an H200 holds."""
FEWEST, MOST = 4, 96
"""Launches of a graph."""
RIGHT = {torch.bfloat16: 2**-7, torch.float16: 2**-10, torch.float32: 1e-5}

Operation = Callable[..., torch.Tensor]


def residual(x: torch.Tensor, weight: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight) + other


def gate(x: torch.Tensor, weight: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(F.linear(x, weight)) * F.linear(x, up)


def norm(x: torch.Tensor, weight: torch.Tensor, up: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return gate(F.rms_norm(x, scale.shape, scale, 1e-5), weight, up)


KINDS: dict[str, Operation] = {"plain": F.linear, "residual": residual, "gate": gate, "norm": norm}
GATED = ("gate", "norm")


@dataclass
class Case:
    """One product: its operands on the device, the matrices as often as they must be there."""

    shape: str
    rows: int
    kind: str
    dtype: torch.dtype

    @property
    def sizes(self) -> tuple[int, int]:
        return SHAPES[self.shape]

    @property
    def matrices(self) -> int:
        return 2 if self.kind in GATED else 1

    @property
    def vectors(self) -> list[tuple[int, ...]]:
        """The sizes of the operands behind the matrices."""
        inner, columns = self.sizes
        return {"residual": [(self.rows, columns)], "norm": [(inner,)]}.get(self.kind, [])

    @property
    def moved(self) -> int:
        """The fewest bytes that can be moved."""
        inner, columns = self.sizes
        vectors = inner + columns * (2 if self.kind == "residual" else 1)
        return (self.matrices * inner * columns + self.rows * vectors) * self.dtype.itemsize

    def operands(self) -> list[tuple[torch.Tensor, ...]]:
        """The arguments of each launch of a graph."""
        inner, columns = self.sizes
        size = self.matrices * inner * columns * self.dtype.itemsize
        copies = min(MOST, max(FEWEST, -(-UNCACHED // size)))

        def made(*sizes: int) -> torch.Tensor:
            return torch.randn(*sizes, device="cuda", dtype=self.dtype)

        x, first = made(self.rows, inner), made(self.matrices, columns, inner)
        others = [made(*size) for size in self.vectors]
        sets = []
        for copy in range(copies):
            weights = (first if copy == 0 else first.clone()).unbind()
            sets.append((x, *weights, *others))
        return sets


# ---- ours ----------------------------------------------------------------------------------------------------------
def kernels_of(case: Case) -> list[Any]:
    """The kernels of a case, as the schedule gives them."""
    inner, columns = case.sizes
    sizes = [(case.rows, inner), *[(columns, inner)] * case.matrices, *case.vectors]
    return kernels_for(KINDS[case.kind], sizes, case.dtype)


def sources_of(case: Case, tune: bool) -> dict[str, list[Any]]:
    """By what is said of its tile, the sources of the launches of a case; the first is the default."""
    from framejit.backends.fuse.targets.cuda import CudaTarget
    from framejit.backends.fuse.triton.kernel_source import triton_source
    from framejit.backends.fuse.triton.tiles.block_limits import GpuLimits

    limits = GpuLimits.of_device(torch.cuda.current_device())

    def named() -> dict[str, list[Any]]:
        *before, last = kernels_of(case)
        word = "" if case.kind != "norm" else "apart, " if before else "inside, "
        first = [triton_source(kernel, limits) for kernel in before]
        return {word + name: [*first, triton_source(last, tile=tile)] for name, tile in tiles(last, tune).items()}

    if case.kind != "norm":
        return named()
    rule = CudaTarget.norm_rows
    ways = [0, case.rows]  # the norm apart, and inside
    found: dict[str, list[Any]] = {}
    for CudaTarget.norm_rows in reversed(ways) if case.rows <= rule else ways:
        found |= named()
    CudaTarget.norm_rows = rule
    return found


def tiles(kernel: Any, tune: bool) -> dict[str, Any]:
    """Tiles by what is said of them; the first is the default."""
    from framejit.backends.fuse.triton.tiles.block_limits import GpuLimits
    from framejit.backends.fuse.triton.tiles.blocks import candidates
    from framejit.backends.fuse.triton.tiles.product_blocks import product_loops, product_shapes, product_tile

    limits = GpuLimits.of_device(torch.cuda.current_device())
    first = next(iter(candidates(kernel, limits)))
    found = {str(first): first}
    loops = product_loops(kernel)
    if tune and loops is not None:
        for shape in product_shapes(loops):
            tile = product_tile(kernel, loops, *shape)
            found.setdefault(str(tile), tile)
    return found


@dataclass
class Measured:
    case: Case
    cublas: float
    """Seconds, as are the others."""
    ours: dict[str, float]
    """By tile, the default first."""
    default: str
    wrong: dict[str, str]


def measure(case: Case, compiled: dict[str, Any], default: str) -> Measured:
    """`compiled`: by tile the launchers, or what was raised."""
    sets = case.operands()
    function = KINDS[case.kind]
    cublas = seconds_a_launch([partial(function, *given) for given in sets])
    exact = function(*(x.double() for x in sets[0]))
    size = exact.norm()
    eager = (function(*sets[0]).double() - exact).norm()
    ours, wrong = dict[str, float](), dict[str, str]()
    for name, launchers in compiled.items():
        if isinstance(launchers, Exception):
            wrong[name] = f"{type(launchers).__name__}: {launchers}".splitlines()[0][:100]
            continue
        out = torch.full_like(exact, torch.nan, dtype=case.dtype)
        made = {name: torch.empty_like(sets[0][0]) for one in launchers[:-1] for name in one.source.buffers}
        made |= {launchers[-1].source.buffers[-1]: out}
        buffers = [{**made, **{f"x{position}": x for position, x in enumerate(given)}} for given in sets]
        launch = partial(run_all, launchers)
        try:
            ours[name] = seconds_a_launch([partial(launch, given) for given in buffers])
        except Exception as e:
            wrong[name] = f"{type(e).__name__}: {e}"[:100]
            continue
        launch(buffers[0])
        error = (out.double() - exact).norm()
        if not error <= max(1.05 * eager, RIGHT[case.dtype] * size):
            wrong[name] = f"error {error / size:.1e}, eager {eager / size:.1e}"
    return Measured(case, cublas, ours, default, wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tune", action="store_true", help="time all tiles, not only the default")
    parser.add_argument("--rows", default="1,2,4,8,16", help="comma-separated (default: %(default)s)")
    parser.add_argument("--only", default=",".join(SHAPES), help="shapes (default: all)")
    parser.add_argument("--dtype", choices=[str(dtype)[6:] for dtype in RIGHT], default="bfloat16")
    parser.add_argument("--seconds", type=float, default=130, help="no case is begun after so many")
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    options = parser.parse_args()
    began = time.perf_counter()
    use_empty_caches()
    from framejit.backends.fuse.targets.cuda import CudaTarget
    from framejit.backends.fuse.triton.compile import begun_gpu_kernels

    # whatever the rules say: this is what they are made of
    CudaTarget.multiplies = lambda self, rows, *_: rows <= 16
    dtype = getattr(torch, options.dtype)
    driver = ctypes.CDLL("libcuda.so.1")
    torch.zeros(1, device="cuda")
    ceiling = copy_ceiling("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.dtype}, copy {ceiling / 1e9:.0f} GB/s")
    wanted = [int(rows) for rows in options.rows.split(",")]
    cases = [
        Case(shape, rows, kind, dtype)
        for rows, kind in product(wanted, KINDS) for shape in options.only.split(",")
        if kind not in GATED or SHAPES[shape][1] > SHAPES[shape][0]
    ]
    major, minor = torch.cuda.get_device_capability()
    measured: list[Measured] = []
    print(f"{'':24} {'cuBLAS':>14} {'ours':>14} {'of cuBLAS':>9}  tile; the best tiles", flush=True)
    for rows in wanted:
        of_rows = [case for case in cases if case.rows == rows]
        made: list[tuple[Case, str, list[Any]]] = []
        defaults: dict[int, str] = {}
        for case in of_rows:
            if time.perf_counter() - began > options.seconds:
                break
            tuned = case.kind == "plain" or (case.kind in GATED and case.shape == "2048x5632")
            found = sources_of(case, options.tune and tuned and case.shape in TUNED.get(rows, ()))
            defaults[id(case)] = next(iter(found))
            made += [(case, name, sources) for name, sources in found.items()]
        sources = [source for _, _, several in made for source in several]
        binaries = iter(begun_gpu_kernels(sources, 10 * major + minor)())
        launchers: dict[int, dict[str, Any]] = {}
        for case, name, several in made:
            outcomes = [next(binaries) for _ in several]
            failed = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
            launchers.setdefault(id(case), {})[name] = failed[0] if failed else [
                Launcher(source, binary, driver) for source, binary in zip(several, outcomes)
            ]
        print(f"rows {rows}: {len(made)} tiles compiled after {time.perf_counter() - began:.0f} s", flush=True)
        for case in of_rows:
            if id(case) not in launchers or time.perf_counter() - began > options.seconds:
                print(f"{case.shape} {case.kind}: no time left")
                continue
            result = measure(case, launchers[id(case)], defaults[id(case)])
            measured.append(result)
            print(line_of(result, ceiling), flush=True)
    if options.tune:
        print_by_tile(measured, ceiling)
    rows_of = [
        {
            "shape": m.case.shape, "rows": m.case.rows, "kind": m.case.kind, "cublas_s": m.cublas, "ours_s": m.ours,
            "default": m.default, "wrong": m.wrong, "moved_bytes": m.case.moved,
        }
        for m in measured
    ]
    ratios = [m.cublas / m.ours[m.default] for m in measured if m.default in m.ours]
    mean = geometric_mean(ratios)
    print(f"geometric mean: {mean or 0:.2f} times as fast as cuBLAS; {time.perf_counter() - began:.0f} s in all")
    write_json(options.json, {"copy_bytes_per_s": ceiling, "dtype": options.dtype}, rows_of, speed=mean)
    return 1 if any(m.default in m.wrong for m in measured) else 0


def line_of(m: Measured, ceiling: float) -> str:
    def cell(seconds: float | None) -> str:
        share = 0.0 if seconds is None else m.case.moved / seconds / ceiling
        return f"{'-':>14}" if seconds is None else f"{seconds * 1e6:8.2f} {share:5.2f}"

    ours = m.ours.get(m.default)
    best = sorted((s, name) for name, s in m.ours.items() if name not in m.wrong)[:3]
    text = f"{m.case.rows:2} {m.case.shape:11} {m.case.kind:9} {cell(m.cublas)} {cell(ours)} "
    text += f"{(ours or 0) / m.cublas:9.2f}  {m.default}"
    if len(m.ours) > 1:
        text += "; " + ", ".join(f"{s * 1e6:.2f} {name}" for s, name in best)
    return text + "".join(f"\n    {name}: {why}" for name, why in [*m.wrong.items()][:3])


def print_by_tile(measured: Sequence[Measured], ceiling: float) -> None:
    """Shares of the bandwidth: a line for each tile, a column for each case."""
    for rows, kind in product(TUNED, KINDS):
        chosen = [m for m in measured if (m.case.rows, m.case.kind) == (rows, kind) and len(m.ours) > 1]
        if not chosen:
            continue
        print(f"\n{rows} rows, {kind}: share of the bandwidth by tile")
        print(f"{'':34}" + "".join(f"{m.case.shape:>12}" for m in chosen) + "  mean")
        lines = []
        for name in dict.fromkeys(name for m in chosen for name in m.ours):
            shares = [
                m.case.moved / m.ours[name] / ceiling if name in m.ours and name not in m.wrong else None
                for m in chosen
            ]
            mean = geometric_mean(share for share in shares if share is not None)
            cells = "".join(f"{'-' if share is None else f'{share:.2f}':>12}" for share in shares)
            lines.append((mean or 0, f"{name:34}{cells}  {mean or 0:.2f}"))
        for _, line in sorted(lines, reverse=True):
            print(line)


if __name__ == "__main__":
    sys.exit(main())
