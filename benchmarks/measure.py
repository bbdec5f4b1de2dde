"""How the benchmarks of the fusing backend measure: implementations in turn, in one process, each checked against a
float64 reference."""
from __future__ import annotations

import argparse
import atexit
import gc
import json
import math
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from workloads import SIZES, Case, Setting, Workload

IMPLEMENTATIONS = ("ours", "eager", "compile")
CACHES = ("FRAMEJIT_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")
SETTLING_CALLS, SETTLING_S = 12, 0.2
"""Calls, and seconds of them, before anything is timed. framejit compares its code with eager on the first calls and
then keeps the quicker one."""
SAMPLE_S, MOST_CALLS = 0.02, {"cpu": 20_000, "cuda": 200}
"""One sample is so many seconds of calls. A GPU's queue holds about a thousand launches: a sample that fills it would
measure the wait."""
CLOCK_NOISE = 1.02
"""Two measurements of the same code differ by so much: `not slower` allows for it."""
CHECKED_SEEDS = (101, 102)
ROUNDING = {torch.float64: 1e-14, torch.float32: 1e-6, torch.float16: 2**-9, torch.bfloat16: 2**-6}
"""Relative errors that are accepted of a result of a type, however exact eager happens to be: some four roundings.
Eager may be lucky: in a new ResNet a batch norm multiplies by 0.999995, which rounding to bfloat16 undoes; without it
each tie of the sum that follows is rounded the same way."""

Arguments = tuple[Any, ...]


# ---- the command line ----------------------------------------------------------------------------------------------
def command(description: str | None, names: Iterable[str], rounds: int = 7) -> argparse.ArgumentParser:
    """A parser with the options that all commands share; `names` are the workloads that `--only` chooses from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), help="by default a GPU if there is one")
    parser.add_argument(
        "--dtype",
        choices=[str(t).removeprefix("torch.") for t in ROUNDING],
        help="by default bfloat16 on GPUs, float32 on CPUs",
    )
    parser.add_argument("--size", choices=SIZES, help="by default large on GPUs, small on CPUs")
    parser.add_argument(
        "--only", type=choice(names), default=list(names), metavar="NAMES",
        help=f"comma-separated, of {', '.join(names)}",
    )
    parser.add_argument(
        "--impls", type=choice(IMPLEMENTATIONS), default=list(IMPLEMENTATIONS), metavar="NAMES",
        help=f"of {','.join(IMPLEMENTATIONS)}",
    )
    parser.add_argument("--backend", default="fuse", help="framejit's backend (default: fuse)")
    parser.add_argument("--rounds", type=int, default=rounds, help=(
        f"rounds in which the implementations take turns (default: {rounds})"
    ))
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    return parser


def choice(names: Iterable[str]) -> Callable[[str], list[str]]:
    """What reads names of these, with commas between them, from a command line."""
    known = list(names)

    def parse(text: str) -> list[str]:
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return chosen

    return parse


def setting(options: argparse.Namespace) -> Setting:
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device == "cuda"
    dtype = getattr(torch, options.dtype or ("bfloat16" if on_gpu else "float32"))
    return Setting(device, dtype, options.size or ("large" if on_gpu else "small"))


def describe(s: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """Where and how the figures were made; printed as the first line, and the head of the JSON."""
    device = torch.cuda.get_device_name() if s.device == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    about = {
        "torch": torch.__version__, "python": sys.version.split()[0], "device": device,
        "dtype": str(s.dtype).removeprefix("torch."), "size": s.size,
    }
    about |= {"backend": options.backend, "rounds": options.rounds}
    print(", ".join(f"{key} {value}" for key, value in about.items()), flush=True)
    return about


def write_json(path: str | None, about: dict[str, Any], rows: list[dict[str, Any]], **summary: Any) -> None:
    if path:
        pathlib.Path(path).write_text(json.dumps({**about, "rows": rows, "summary": summary}, indent=1))


def use_empty_caches() -> None:
    """Gives this process compilers' caches of its own, gone when it ends. To be called before a compiler is
    imported."""
    folder = tempfile.mkdtemp(prefix="benchmark-caches-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ.update(caches_in(folder))


def caches_in(folder: str) -> dict[str, str]:
    return {variable: os.path.join(folder, variable.lower()) for variable in CACHES}


# ---- running -------------------------------------------------------------------------------------------------------
def implement(
    implementation: str, fn: Callable[..., Any], backend: str, mode: str | None = None
) -> Callable[..., Any]:
    if implementation == "eager":
        return fn
    if implementation == "compile":
        return torch.compile(fn, mode=mode)
    import framejit

    return framejit.optimize(fn, backend=backend, mode=mode or "default")


def sync(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def per_call(fn: Callable[..., Any], args: Arguments, device: str, calls: int) -> tuple[float, float]:
    """Seconds a call until the device is done, and until the host is."""
    sync(device)
    start = time.perf_counter()
    for _ in range(calls):
        fn(*args)
    host = time.perf_counter() - start
    sync(device)
    return (time.perf_counter() - start) / calls, host / calls


@dataclass
class Result:
    """One implementation on one workload. Seconds and bytes; `error` says why there are no figures."""

    first_s: float | None = None
    seconds: float | None = None
    noise: float | None = None
    host_s: float | None = None
    peak_bytes: int | None = None
    error_norm: float | None = None
    error_worst: float | None = None
    right: bool | None = None
    kernels: int | None = None
    reverted: int | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None and value != []}


def run_case(case: Case, s: Setting, options: argparse.Namespace, *, memory: bool = False) -> dict[str, Result]:
    """Compiles, settles, times in turns and checks every implementation of `options.impls`."""
    args, results, sides = case.args(0), {}, {}
    peak = PeakMemory(case, args, s.device) if memory else None
    with torch.no_grad():
        case.fn(*args)  # what libraries set up once is nobody's first call, and nobody's memory
        for name in options.impls:
            results[name] = Result()
            with reported_in(results[name]):
                sides[name] = _settled(name, case, args, s.device, options.backend, results[name], peak)
        interleaved(sides, args, s.device, options.rounds, results)
        try:
            check(case, sides, results)
        except Exception as e:
            # the reference itself, for want of memory: the times are worth keeping, but not to be trusted
            for name in sides:
                results[name].error = results[name].error or f"not checked: {type(e).__name__}: {str(e)[:200]}"
    return results


def run_all(
    workloads: Iterable[Workload], s: Setting, options: argparse.Namespace,
    run: Callable[[Any, Setting, argparse.Namespace], dict[str, Result]] = run_case,
) -> Iterator[tuple[Any, Row]]:
    """The rows of a table, each measured by `run` when it is asked for. A workload that cannot be built or run here is
    named and left out."""
    for workload in workloads:
        try:
            case = workload.make(s)
            results = run(case, s, options)
        except Exception as e:
            print(f"{workload.name:16} | cannot be run here: {type(e).__name__}: {str(e)[:150]}", flush=True)
            continue
        yield case, Row(workload, results)
        del case, results
        forget()


@dataclass
class Row:
    """The results of one workload. Ratios are our time over theirs, None where either is missing."""

    workload: Workload
    results: dict[str, Result]
    verdict: str = "-"

    @property
    def ours(self) -> Result:
        return self.results.get("ours") or Result()

    @property
    def compile(self) -> Result:
        return self.results.get("compile") or Result()

    @property
    def eager(self) -> Result:
        return self.results.get("eager") or Result()

    @property
    def of_eager(self) -> float | None:
        return ratio(self.ours.seconds, self.eager.seconds)

    @property
    def of_compile(self) -> float | None:
        return ratio(self.ours.seconds, self.compile.seconds)

    def judge(self, holds: bool | None) -> str:
        """`holds`: whether the target is met, None if that cannot be told. Code that fails or is wrong meets
        nothing."""
        self.verdict = "FAILED" if self.ours.error else "WRONG" if self.ours.right is False else verdict(holds)
        return self.verdict

    def remarks(self) -> str:
        """Lines to print under the row: failures, wrong results, and what framejit says about what it did."""
        lines = []
        for name, r in self.results.items():
            if r.error:
                lines.append(f"{name}: {r.error}")
            if r.right is False:
                lines.append(f"{name}: WRONG, error {r.error_norm:.1e}, worst element {r.error_worst:.1e}")
            if r.reverted:
                lines.append(f"{name}: {r.reverted} of its regions measured slower than eager and run as eager")
            lines += [f"{name}: {note}" for note in r.notes[:3]]
        return "".join(f"\n    {line.splitlines()[0][:150]}" for line in lines)

    def as_json(self, **more: Any) -> dict[str, Any]:
        results = {name: result.as_json() for name, result in self.results.items()}
        ratios = {"of_eager": self.of_eager, "of_compile": self.of_compile}
        return {
            "name": self.workload.name, "what": self.workload.text, **results, **ratios, **more,
            "verdict": self.verdict,
        }


class reported_in:
    """A failure belongs into the row of what failed: the other implementations go on."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: Any) -> bool:
        if not isinstance(error, Exception):
            return False
        self._result.error = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return True


def _settled(
    name: str, case: Case, args: Arguments, device: str, backend: str, result: Result, peak: PeakMemory | None
) -> Callable[..., Any]:
    began = time.time_ns()
    if peak:
        peak.before_compiling()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sync(device)
        start = time.perf_counter()
        fn = implement(name, case.fn, backend)
        fn(*args)
        sync(device)
        settling = time.perf_counter()
        result.first_s = settling - start
        calls = 0
        while calls < SETTLING_CALLS or time.perf_counter() - settling < SETTLING_S:
            fn(*args)
            sync(device)
            calls += 1
        if peak:
            result.peak_bytes = peak.of_call(fn)
    if name == "ours":
        _tell_what_was_done(
            result, began, [str(w.message) for w in caught if w.category.__module__.startswith("framejit")]
        )
    return fn


def _tell_what_was_done(result: Result, began_ns: int, complaints: list[str]) -> None:
    """A figure of eager code must not pass for one of compiled code: what framejit decided on the way goes into the
    row."""
    from framejit import events

    seen = [event for event in events.events() if event.time_ns >= began_ns]
    result.kernels = sum(event.kind == "output_code" for event in seen)
    result.reverted = sum(event.kind == "perf" and event.state == "eager" for event in seen)
    result.notes = complaints
    for event in seen:
        if event.kind == "frame_done" and event.state != "compiled":
            result.notes.append(f"{event.function} is {event.state}: {event.reason}")


def interleaved(
    sides: dict[str, Callable[..., Any]], args: Arguments, device: str, rounds: int, results: dict[str, Result],
    samples: int = 3,
) -> None:
    """Fills in times: medians over the rounds of the medians of a round's samples; noise is half the range of the
    rounds over the median."""
    walls: dict[str, list[float]] = {name: [] for name in sides}
    hosts: dict[str, list[float]] = {name: [] for name in sides}
    gc.collect()
    gc.disable()
    try:
        for turn in range(rounds):
            first = turn % max(1, len(sides))
            for name in [*sides][first:] + [*sides][:first]:
                with reported_in(results[name]):
                    probe, _ = per_call(sides[name], args, device, 1)
                    calls = max(1, min(MOST_CALLS[device], int(SAMPLE_S / max(probe, 1e-7))))
                    taken = [per_call(sides[name], args, device, calls) for _ in range(samples)]
                    walls[name].append(statistics.median(wall for wall, _ in taken))
                    hosts[name].append(statistics.median(host for _, host in taken))
    finally:
        gc.enable()
    for name, medians in walls.items():
        if results[name].error is None:
            results[name].seconds = statistics.median(medians)
            results[name].noise = (max(medians) - min(medians)) / 2 / statistics.median(medians)
            results[name].host_s = statistics.median(hosts[name])


def copy_ceiling(device: str) -> float:
    """Bytes a second that a copy in memory moves, reads and writes counted."""
    source = torch.randn(1 << 30, device=device, dtype=torch.bfloat16) if device == "cuda" else torch.randn(1 << 24)
    target = torch.empty_like(source)
    per_call(target.copy_, (source,), device, 3)
    seconds = statistics.median(per_call(target.copy_, (source,), device, 5)[0] for _ in range(9))
    return 2 * source.nbytes / seconds


def forget() -> None:
    """Drops compiled code between workloads, which would otherwise keep tensors in memory."""
    for compiler in ("framejit", "torch._dynamo"):
        if compiler in sys.modules:
            sys.modules[compiler].reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# ---- checking ------------------------------------------------------------------------------------------------------
def check(case: Case, sides: dict[str, Callable[..., Any]], results: dict[str, Result]) -> None:
    """Compares each side with a float64 run on fresh inputs. It may be twice as far from it as eager is, and never has
    to be closer than rounding.

    `error_norm` is the norm of the error over the norm of the result; `error_worst` is the worst of the elements, each
    over its own size plus the root mean square of all, so that one wrong row in a large result shows.
    """
    for seed in CHECKED_SEEDS:
        args = case.args(seed)
        exact = tensors_in(case.reference(*_in_float64(args)))
        expected = tensors_in(case.fn(*args))
        eager = [_errors(e, x) for e, x in zip(expected, exact, strict=True)]
        for name, fn in sides.items():
            result = results[name]
            with reported_in(result):
                got = tensors_in(fn(*args))
                same_kind = len(got) == len(expected) and all(
                    g.shape == e.shape and g.dtype == e.dtype for g, e in zip(got, expected)
                )
                errors = [_errors(g, x) for g, x in zip(got, exact)] if same_kind else [(math.inf, math.inf)]
                within = same_kind and all(
                    _within(mine, theirs, e.dtype) for mine, theirs, e in zip(errors, eager, expected)
                )
                result.right = within and result.right is not False
                result.error_norm = max(result.error_norm or 0.0, *(norm for norm, _ in errors))
                result.error_worst = max(result.error_worst or 0.0, *(worst for _, worst in errors))


def _within(mine: tuple[float, float], eager: tuple[float, float], dtype: torch.dtype) -> bool:
    rounding = ROUNDING[dtype]
    return mine[0] <= max(2 * eager[0], rounding) and mine[1] <= max(4 * eager[1], 8 * rounding)


def _errors(got: torch.Tensor, exact: torch.Tensor) -> tuple[float, float]:
    difference = (got.double() - exact).abs()
    if not bool(torch.isfinite(difference).all()):
        return math.inf, math.inf
    root_mean_square = exact.square().mean().sqrt()
    return (difference.norm() / exact.norm()).item(), (difference / (exact.abs() + root_mean_square)).max().item()


def _in_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    return type(value)(_in_float64(v) for v in value)


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in tensors_in(v)]


# ---- memory --------------------------------------------------------------------------------------------------------
class PeakMemory:
    """The most bytes of tensors alive during a call: weights, arguments, what the implementation keeps, and what the
    call allocates.

    GPU: as torch's allocator counts. CPU: the allocations that torch's profiler reports, on top of weights and
    arguments; what an implementation keeps between calls is not seen there.
    """

    def __init__(self, case: Case, args: Arguments, device: str) -> None:
        self._args, self._device = args, device
        weights = [*case.module.parameters(), *case.module.buffers()] if case.module else []
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in [*tensors_in(args), *weights]}
        self._inherent = sum(storages.values())
        self._others = 0

    def before_compiling(self) -> None:
        if self._device == "cuda":
            gc.collect()
            self._others = torch.cuda.memory_allocated() - self._inherent

    def of_call(self, fn: Callable[..., Any]) -> int:
        """Bytes; `fn` is called with the arguments, after it has settled."""
        gc.collect()
        if self._device == "cpu":
            return self._inherent + allocated_on_cpu(fn, self._args)
        sync("cuda")
        torch.cuda.reset_peak_memory_stats()
        fn(*self._args)
        sync("cuda")
        return torch.cuda.max_memory_allocated() - self._others


def allocated_on_cpu(fn: Callable[..., Any], args: Arguments) -> int:
    """The most bytes alive in a call, of those that it takes."""
    from torch.profiler import ProfilerActivity, profile

    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it tells when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = fn(*args)
    del kept
    changes = [(e.start_ns(), e.nbytes()) for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    alive = peak = 0
    for _, nbytes in sorted(changes, key=lambda change: change[0]):
        alive += nbytes
        peak = max(peak, alive)
    return peak


# ---- ratios and verdicts -------------------------------------------------------------------------------------------
def ratio(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def geometric_mean(ratios: Iterable[float | None]) -> float | None:
    """None where a ratio is missing, or there is none."""
    logarithms = [math.log(r) if r else None for r in ratios]
    known = [value for value in logarithms if value is not None]
    return math.exp(statistics.fmean(known)) if known and len(known) == len(logarithms) else None


def figure(value: float | None, form: str) -> str:
    """`value` in a format, or a dash in a column as wide."""
    return f"{value:{form}}" if value is not None else f"{'-':>{form.split('.')[0]}}"


def at_least(value: float | None, target: float) -> bool | None:
    return None if value is None else value >= target


def at_most(value: float | None, target: float) -> bool | None:
    return None if value is None else value <= target


def verdict(holds: bool | None) -> str:
    """`holds`: whether the target is met, None if that cannot be told."""
    return "-" if holds is None else "ok" if holds else "short"


def exit_code(rows: Iterable[Row]) -> int:
    """1 if a result of ours was wrong or is missing; slow is not an error."""
    return int(any(row.ours.error or row.ours.right is False for row in rows))
