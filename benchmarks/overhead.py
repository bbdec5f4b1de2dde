"""What a call of compiled code costs beyond the work itself: framejit and torch.compile(backend="eager"), side by side
in one run.

    python benchmarks/overhead.py [--rounds 15] [--least] [--json FILE]

Each figure is the median over interleaved rounds; with --least the least of them, for a machine that others keep busy.
Wanted:
  two tensor arguments    at most 0.2 us over the bare call
  64 tensors in a list    at most 3 us over the bare call
  12-layer BERT's guards  at most 1/20 of torch.compile's
  un-captured calls       as fast after captured code has run as before
"""
from __future__ import annotations

import argparse
import gc
import json
import pathlib
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from capture import MODELS, prepare_imports

import framejit


@dataclass
class Row:
    """Nanoseconds a call; `limit` bounds `judged`, in the unit that `unit` names."""

    name: str
    bare: float
    framejit: float
    torch_compile: float
    judged: float
    limit: float
    unit: str

    def __str__(self) -> str:
        bare = f"{self.bare:12.0f}" if self.bare else f"{'':12}"
        verdict = "ok" if self.judged <= self.limit else "MISSED"
        theirs = self.torch_compile - self.bare
        # else a ratio of noise
        ratio = f"{(self.framejit - self.bare) / theirs:10.4f}" if theirs > 0.2 * self.bare else f"{'':10}"
        judged = f"{self.judged:8.3f} {self.unit} (at most {self.limit:g})"
        return f"{self.name:38s}{bare}{self.framejit:12.0f}{self.torch_compile:12.0f}{ratio}   {judged}  {verdict}"


over_rounds: Callable[[list[float]], float] = statistics.median


def per_call(fn: Callable[..., Any], args: tuple[Any, ...], calls: int) -> float:
    """Nanoseconds of one call, loop included (all sides pay the same loop)."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        fn(*args)
    return (time.perf_counter_ns() - start) / calls


def interleaved(
    sides: dict[str, Callable[..., Any]], args: tuple[Any, ...], calls: int, rounds: int
) -> dict[str, float]:
    """Nanoseconds a call of each side."""
    for fn in sides.values():
        per_call(fn, args, max(3, calls // 10))
    if over_rounds is min:  # short ones: a long one is always interrupted
        calls, rounds = max(1, calls // 50), rounds * 20
    times: dict[str, list[float]] = {name: [] for name in sides}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, fn in sides.items():
                times[name].append(per_call(fn, args, calls))
    finally:
        gc.enable()
    return {name: over_rounds(t) for name, t in times.items()}


def compiled_by_both(fn: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {
        "bare": fn,
        "framejit": framejit.optimize(fn, backend="eager"),
        "torch_compile": torch.compile(fn, backend="eager", dynamic=False),
    }


def two_tensors(rounds: int) -> Row:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y

    t = interleaved(compiled_by_both(fn), (torch.randn(16), torch.randn(16)), 10_000, rounds)
    return Row("two tensor arguments", **t, judged=(t["framejit"] - t["bare"]) / 1000, limit=0.2, unit="us over bare")


def many_tensors(rounds: int) -> Row:
    def fn(tensors: list[torch.Tensor]) -> torch.Tensor:
        total = tensors[0]
        for t in tensors[1:]:
            total = total + t * 0.5
        return total

    t = interleaved(compiled_by_both(fn), ([torch.randn(8) for _ in range(64)],), 300, rounds)
    return Row("64 tensors in a list", **t, judged=(t["framejit"] - t["bare"]) / 1000, limit=3, unit="us over bare")


def dynamo_guard_check(code: Any, frame_locals: dict[str, Any]) -> Callable[[], bool]:
    """torch.compile's own guard evaluation for its newest entry of `code`."""
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    manager = _debug_get_cache_entry_list(code)[0].guard_manager
    return lambda: manager.check(frame_locals)


def guards_of_a_list(rounds: int) -> Row:
    def fn(tensors: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(tensors)

    tensors = [torch.randn(8) for _ in range(64)]
    return guard_row("  its guards alone", fn, {"tensors": tensors}, {"tensors": tensors}, 2_000, rounds)


def guard_row(
    name: str, fn: Any, arguments: dict[str, Any], frame_locals: dict[str, Any], calls: int, rounds: int,
    limit: float = 1.0,
) -> Row:
    sides = compiled_by_both(fn)
    for side in sides.values():
        side(*arguments.values())
    dispatcher, flat = sides["framejit"], tuple(arguments.values())
    theirs = dynamo_guard_check(fn.__code__, frame_locals)
    if dispatcher.lookup(flat) is None or not theirs():  # type: ignore[attr-defined]
        raise RuntimeError(f"{name}: the guards do not hold on the call that made them")
    guards = {"framejit": lambda: dispatcher.lookup(flat), "torch_compile": theirs}  # type: ignore[attr-defined]
    t = interleaved(guards, (), calls, rounds)
    return Row(name, 0, **t, judged=t["framejit"] / t["torch_compile"], limit=limit, unit="of torch.compile")


def bert(rounds: int) -> list[Row]:
    prepare_imports()
    model, inputs = MODELS["bert"]()
    ids = inputs["input_ids"]

    def fn(ids: torch.Tensor) -> torch.Tensor:
        return model(input_ids=ids)[0]

    with torch.no_grad():
        guards = guard_row(
            "12-layer BERT, guards alone", fn, {"ids": ids}, {"ids": ids, "model": model}, 200, rounds, limit=0.05
        )
        t = interleaved(compiled_by_both(fn), (ids,), 3, rounds)
    return [
        guards,
        Row(
            "12-layer BERT, end to end", **t, judged=t["framejit"] / t["torch_compile"], limit=1,
            unit="of torch.compile",
        ),
    ]


def plain(value: int) -> int:
    return value


def call_plain(calls: int) -> float:
    start = time.perf_counter_ns()
    for _ in range(calls):
        plain(1)
    return (time.perf_counter_ns() - start) / calls


def uncaptured_calls(rounds: int) -> list[Row]:
    """A plain Python function called before, inside of and after captured code."""
    seen: dict[str, list[float]] = {"framejit": [], "torch_compile": []}
    calls = 20_000

    @framejit.disable
    @torch.compiler.disable
    def measure_inside(side: str) -> None:
        seen[side].append(call_plain(calls))

    def fn(x: torch.Tensor, side: str) -> torch.Tensor:
        y = x + 1
        measure_inside(side)
        return y * 2

    call_plain(calls)
    before = [call_plain(calls) for _ in range(rounds)]
    sides = compiled_by_both(fn)
    after: dict[str, list[float]] = {"framejit": [], "torch_compile": []}
    for _ in range(rounds):
        for side in seen:
            sides[side](torch.ones(2), side)
            after[side].append(call_plain(calls))
    bare = over_rounds(before)
    rows = []
    for when, times in (("inside captured code", seen), ("after captured code", after)):
        t = {side: over_rounds(times[side]) for side in times}
        limit = 1.1 if when.startswith("after") else 2.0
        rows.append(
            Row(
                f"un-captured call {when}", bare, **t, judged=t["framejit"] / bare, limit=limit,
                unit="of the same before",
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--least", action="store_true", help="the least of the rounds, not their median")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--without-bert", action="store_true", help="leave out the row that needs transformers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    global over_rounds
    over_rounds, word = (min, "least") if options.least else (statistics.median, "median")
    print(
        f"torch {torch.__version__}, python {sys.version.split()[0]}; nanoseconds a call, {word} of {options.rounds} "
        "interleaved rounds"
    )
    print(f"{'':38s}{'bare':>12}{'framejit':>12}{'torch.comp':>12}{'ratio':>10}   (ratio: of the costs over bare)")
    rows: list[Row] = []
    parts: list[Callable[[int], Row | list[Row]]] = [uncaptured_calls, two_tensors, many_tensors, guards_of_a_list]
    for part in parts if options.without_bert else [*parts, bert]:
        made = part(options.rounds)
        for row in made if isinstance(made, list) else [made]:
            rows.append(row)
            print(row, flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(
            json.dumps({"torch": torch.__version__, "rows": [asdict(r) for r in rows]}, indent=1)
        )


if __name__ == "__main__":
    main()
