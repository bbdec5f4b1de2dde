"""The wall through Triton: operators lowered as for a GPU, their kernels run by Triton's interpreter on CPU tensors,
and all compared with eager.

    TRITON_INTERPRET=1 python tests/fuse/operators/operator_wall_triton.py [--json FILE] [--processes N] [OPERATOR ...]

prints what the wall of CPUs prints (operator_wall.py), and how many kernels were run. A program of its own: the
interpreter is chosen before Triton is imported. What a plan would leave to ATen is done by ATen's operations of the
CPU. The report has the kernels' sources, for the compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))

from framejit.backends.fuse.graph.known import KnownValues
from framejit.backends.fuse.loop_ir.nodes import ExternNode, Kernel, LoweredGraph
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.random_numbers.drawn_again import drawing_as_kernels
from framejit.backends.fuse.schedule.make_kernels import schedule
from framejit.backends.fuse.targets.lookup import standing_in
from framejit.backends.fuse.triton.kernel_source import TritonSource
from framejit.config import config
from framejit.fakes.light_torch import light
from tests.fuse.operators.operator_cases import Case, cases, operators
from tests.fuse.operators.operator_wall import (
    EXTERN,
    FUSED,
    HELPERS,
    RAISES,
    REFUSED,
    SEED,
    Differs,
    Report,
    attempt,
    compare,
    copies,
    graph_of_fakes,
    judged,
)
from tests.fuse.stages import lower
from tests.fuse.triton_kernels.triton_run import TritonRun, first_tile, in_many_blocks, laid_out, moved
from tests.making_cpu import MakingCpu


@dataclass
class TritonReport(Report):
    """What became of the cases, and of the kernels."""

    launches: int = 0
    """How often a kernel was run by the interpreter: each with the tile that it is compiled with, and in many
    blocks."""
    kernels: dict[str, TritonSource] = field(default_factory=dict)
    """Kernels whose machine code differs, by `TritonSource.key`."""
    users: dict[str, set[str]] = field(default_factory=dict)
    """Per operator the keys of its kernels."""

    def launched(self, source: TritonSource) -> None:
        """Note a kernel that is run."""
        self.launches += 1

    def compiled(self, operator: str) -> Callable[[TritonSource], None]:
        """What notes a kernel of an operator that is run as it is compiled."""

        def launched(source: TritonSource) -> None:
            self.launched(source)
            self.kernels[source.key] = source
            self.users.setdefault(operator, set()).add(source.key)

        return launched

    @classmethod
    def from_json(cls, written: dict[str, Any]) -> TritonReport:
        """The report of which `as_json` has given this."""
        made = cls(
            {kind: Counter(counts) for kind, counts in written["cases"].items()}, written["operators"],
            Counter(written["reasons"]), written["failures"],
        )
        made.launches = written["launches"]
        made.users = {name: set(keys) for name, keys in written["users"].items()}
        for key, fields in written["kernels"].items():
            signature = tuple((name, kind, aligned) for name, kind, aligned in fields["signature"])
            made.kernels[key] = TritonSource(**{**fields, "buffers": tuple(fields["buffers"]), "signature": signature})
        return made

    def merge(self, other: Report) -> None:
        super().merge(other)
        assert isinstance(other, TritonReport)
        self.launches += other.launches
        self.kernels.update(other.kernels)
        self.users.update(other.users)

    def __str__(self) -> str:
        return (
            f"{super().__str__()}\n{len(self.kernels)} different kernels, {self.launches} runs by Triton's interpreter"
        )

    def as_json(self) -> dict[str, Any]:
        kernels = {key: vars(source) for key, source in self.kernels.items()}  # a deep copy takes seconds
        return {
            **super().as_json(), "launches": self.launches, "kernels": kernels,
            "users": {name: sorted(keys) for name, keys in self.users.items()},
        }


def check_operators(names: Sequence[str]) -> TritonReport:
    """Compare all cases of operators. Their names go to standard error: the last one is to blame for a crash."""
    report = TritonReport()
    with config.patch(debug=True), standing_in("cpu", MakingCpu):
        for name in names:
            print(name, file=sys.stderr, flush=True)
            check_operator(name, report)
    return report


def check_operator(name: str, report: TritonReport) -> None:
    """Compare all cases of an operator."""
    for case in cases(name):
        if case.variant.startswith("dtype"):
            continue  # what a GPU's own operations would refuse is asked of a GPU
        report.add(case, *judged(partial(check_case, case, report)))


def check_case(case: Case, report: TritonReport) -> tuple[str, str]:
    """Lower a case, run what it was lowered to, and compare. What became of it, and why if it was refused."""
    theirs = copies(case.tensors)
    expected, error = attempt(case.function, theirs)
    if has_drawn():  # kernels draw other numbers
        theirs = copies(case.tensors)
        expected, error = attempt(drawing_as_kernels(case.function), theirs)
    try:
        lowered = lowered_for_gpu(case, 1 if expected is None else len(expected))
    except NotFusable as e:
        return REFUSED, RAISES if error is not None else str(e)
    steps = schedule(lowered)
    externs = {getattr(step.function, "__name__", str(step.function)) for step in steps if isinstance(step, ExternNode)}
    verdict = FUSED if externs <= HELPERS else EXTERN
    if error is not None and "out of bounds" in str(error):
        return verdict, RAISES  # on a GPU the device asserts it, which no process survives
    if verdict == EXTERN and not any(isinstance(step, Kernel) for step in steps):
        return verdict, "" if error is None else RAISES
    graph = replace(lowered, nodes=list(steps))
    # how a kernel goes from block to block does not depend on such dtypes
    for tile in (first_tile,) if _is_another_dtype(case) else (first_tile, in_many_blocks):
        ours = copies(case.tensors)
        run = TritonRun(graph, tile, report.compiled(case.operator) if tile is first_tile else report.launched)
        result, own_error = attempt(lambda *tensors, run=run: run.run(tensors), ours)
        if type(own_error) is not type(error):
            raise Differs(f"raises no {error!r}") if own_error is None else own_error
        if error is not None:
            return verdict, RAISES
        try:
            compare(case, result, expected, ours, theirs)
        except Differs:
            compare(case, result, as_on_gpu(case, expected), ours, theirs)
    return verdict, ""


def has_drawn() -> bool:
    """Whether what was attempted last has drawn random numbers."""
    seeded = torch.Generator().manual_seed(SEED).get_state()
    return not torch.equal(torch.default_generator.get_state(), seeded)


def _is_another_dtype(case: Case) -> bool:
    return all(tensor.dtype in (torch.bfloat16, torch.bool) for tensor in case.tensors)


def as_on_gpu(case: Case, expected: list[Any]) -> list[Any]:
    """Eager's results in the dtypes and strides that torch says they have on a GPU, which in places are others than on
    a CPU."""
    fakes: list[Any] = gpu_fakes(case.tensors)
    with light(), fakes[0].fake_mode:
        told = _on_gpu(case.function)(*fakes)
    return [
        laid_out(one, fake.stride(), fake.dtype) if isinstance(one, torch.Tensor) else one
        for one, fake in zip(expected, told, strict=True)
    ]


def lowered_for_gpu(case: Case, n_results: int) -> LoweredGraph:
    """What a case is lowered to where its tensors are on a GPU. None is needed. Raises NotFusable."""
    fakes = gpu_fakes(case.tensors)
    with torch.no_grad():
        return lower(graph_of_fakes(_on_gpu(case.function), fakes, n_results), fakes)


def gpu_fakes(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Fakes of the same layout on a GPU; those that are the same object, or share memory, do so again."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with light():
        with FakeTensorMode(allow_fallback_kernels=False):
            return _same_layouts(tensors)


def _same_layouts(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    memory: dict[int, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}
    users = Counter({id(tensor): tensor.untyped_storage()._cdata for tensor in tensors}.values())
    for tensor in tensors:
        if id(tensor) in made:
            continue
        storage = tensor.untyped_storage()
        extent = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
        if users[storage._cdata] == 1 and tensor.numel() and storage.nbytes() == extent * tensor.itemsize:
            # one operation on fakes, which are what lowering a sample takes longest for
            fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
        else:
            if storage._cdata not in memory:
                memory[storage._cdata] = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cuda")
            size = storage.nbytes() // tensor.itemsize * tensor.itemsize
            flat = memory[storage._cdata].narrow(0, 0, size).view(tensor.dtype)
            fake = flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        fake = fake.conj() if tensor.is_conj() else fake
        made[id(tensor)] = torch._neg_view(fake) if tensor.is_neg() else fake
    return [made[id(tensor)] for tensor in tensors]


def _on_gpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with a GPU in place of the CPU that it asks for, as the samples of CPUs do."""

    def on_gpu(*tensors: torch.Tensor) -> Any:
        with _OnGpu():
            return function(*tensors)

    return on_gpu


class _OnGpu(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*moved(args, "cuda"), **moved(kwargs or {}, "cuda"))


def do_without_gpu() -> None:
    """Have this process lower for GPUs also where it has none."""
    # torch enters a device before it looks at fakes on it. Without CUDA nothing knows how: have what does so for CPUs,
    # nothing, done for GPUs (number 1)
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    guards[1] = guards[1] or guards[0]
    # what depends on no input is computed where it will be needed
    real = KnownValues._operand
    KnownValues._operand = lambda self, value: (
        torch.device("cpu") if isinstance(value, torch.device) else real(self, value)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("operators", nargs="*", help="names as in op_db (default: all)")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--processes", type=int, default=1, help="how many forks of this one share the operators")
    options = parser.parse_args(arguments)
    from tests.fuse.triton_kernels import triton_standins

    triton_standins.install()
    do_without_gpu()
    # it tells of every error that a sample is meant to make
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    torch.set_num_threads(1)
    names = options.operators or list(operators())
    report = TritonReport()
    if options.processes == 1:
        report = check_operators(names)
    else:  # the database, which they look at, takes seconds to import
        with ProcessPoolExecutor(options.processes, get_context("fork")) as pool:
            for part in pool.map(check_operators, [names[i :: options.processes] for i in range(options.processes)]):
                report.merge(part)
    print(report)
    if options.json:
        options.json.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
