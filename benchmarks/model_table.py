"""The table of models: steady time, first call and peak memory of framejit, eager and torch.compile, a line for each
model."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from measure import Result, Row, at_most, describe, figure, ratio, run_all, setting, use_empty_caches
from workloads import Setting, Workload

Wanted = Mapping[str, Mapping[str, float]]
"""Per type of device what "time", "memory" and "first call" are to be at most, over torch.compile's."""


def measured_rows(
    models: Iterable[Workload], options: argparse.Namespace, wanted: Wanted,
    run: Callable[[Any, Setting, argparse.Namespace], dict[str, Result]],
) -> tuple[dict[str, Any], list[Row], list[dict[str, Any]]]:
    """Measures each model by `run`, judges it and prints its line. What the run was, the rows, and the rows as JSON."""
    use_empty_caches()
    s = setting(options)
    about = describe(s, options)
    side = f"{'ms':>8} {'':5} {'first':>6} {'MB':>7}"
    print(f"{'':10} | {'framejit':^29} | {'eager':^29} | {'torch.compile':^29} | {'of eager':^11} | {'of compile':^17}")
    print(f"{'':10} | {side} | {side} | {side} |  time   mem |  time first   mem", flush=True)
    rows, written = [], []
    for _, row in run_all(models, s, options, run=run):
        more = _judge(row, wanted[s.device])
        cells = " | ".join(_cell(result) for result in (row.ours, row.eager, row.compile))
        of_eager = f"{figure(row.of_eager, '5.2f')} {figure(more['memory_of_eager'], '5.2f')}"
        ratios = " ".join(
            figure(value, "5.2f") for value in (row.of_compile, more["first_of_compile"], more["memory_of_compile"])
        )
        print(f"{row.workload.name:10} | {cells} | {of_eager} | {ratios} {row.verdict}{row.remarks()}", flush=True)
        rows.append(row)
        written.append(row.as_json(**more))
    return about, rows, written


def _cell(result: Result) -> str:
    if result.seconds is None or result.first_s is None:
        return f"{'-':>8} {'':5} {'-':>6} {'-':>7}"
    peak = f"{result.peak_bytes / 2**20:7.1f}" if result.peak_bytes is not None else f"{'-':>7}"
    return f"{result.seconds * 1e3:8.2f} ±{result.noise:4.0%} {result.first_s:6.2f} {peak}"


def _judge(row: Row, wanted: Mapping[str, float]) -> dict[str, float | None]:
    """Judges the row, names what it misses, and returns the ratios that a row does not have itself."""
    ratios = {
        "first_of_compile": ratio(row.ours.first_s, row.compile.first_s),
        "memory_of_compile": ratio(row.ours.peak_bytes, row.compile.peak_bytes),
        "memory_of_eager": ratio(row.ours.peak_bytes, row.eager.peak_bytes),
    }
    of = {"time": row.of_compile, "memory": ratios["memory_of_compile"], "first call": ratios["first_of_compile"]}
    held = {what: at_most(of[what], limit) for what, limit in wanted.items()}
    missed = [what for what, holds in held.items() if holds is False]
    row.judge(False if missed else None if None in held.values() else True)
    if row.verdict == "short":
        row.verdict = f"short: {', '.join(missed)}"
    return ratios
