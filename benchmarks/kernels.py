"""Nine kernels that memory bounds: framejit, eager and torch.compile in turns in one run, checked against float64 on
fresh inputs.

    python benchmarks/kernels.py [--device cuda] [--dtype bfloat16] [--only softmax,rmsnorm]
        [--impls ours,eager,compile] [--json FILE]

`us` is microseconds a call, with half the range of the rounds in percent; `bw` the fraction of the ceiling (a copy,
measured in the same run) that is reached at the fewest bytes the work needs; `of ...` is our time over theirs. Wanted:
  GPU   at least 0.90 of the ceiling, every kernel
  CPU   no kernel slower than torch.compile (2 % are noise), and in the geometric mean at least 1.2 times as fast
"""
from __future__ import annotations

import sys
from typing import Any

from measure import (
    CLOCK_NOISE,
    Result,
    at_least,
    at_most,
    command,
    copy_ceiling,
    describe,
    exit_code,
    figure,
    geometric_mean,
    ratio,
    run_all,
    setting,
    use_empty_caches,
    verdict,
    write_json,
)
from workloads import of_kind

GPU_FRACTION, CPU_OF_COMPILE, CPU_MEAN_SPEED = 0.90, CLOCK_NOISE, 1.2


def cell(result: Result, fraction: float | None) -> str:
    if result.seconds is None:
        return f"{'-':>9} {'':5} {'-':>5}"
    return f"{result.seconds * 1e6:9.1f} ±{result.noise:4.0%} {figure(fraction, '5.2f')}"


def main() -> int:
    kernels = of_kind("kernel")
    options = command(__doc__, kernels).parse_args()
    use_empty_caches()
    s = setting(options)
    about = describe(s, options)
    about["copy_bytes_per_s"] = ceiling = copy_ceiling(s.device)
    on_gpu = s.device == "cuda"
    wanted = f"bw at least {GPU_FRACTION:.2f}" if on_gpu else f"at most {CPU_OF_COMPILE:.2f} of compile"
    side = f"{'us':>9} {'':5} {'bw':>5}"
    print(f"copy ceiling {ceiling / 1e9:.0f} GB/s; wanted: {wanted}")
    print(f"{'':16} | {'framejit':^21} | {'eager':^21} | {'torch.compile':^21} |   of     of")
    print(f"{'':16} | {side} | {side} | {side} | eager compile", flush=True)
    rows, written = [], []
    for case, row in run_all([kernels[name] for name in options.only], s, options):
        reached = {name: ratio(case.moved_bytes, r.seconds and r.seconds * ceiling) for name, r in row.results.items()}
        row.judge(at_least(reached.get("ours"), GPU_FRACTION) if on_gpu else at_most(row.of_compile, CPU_OF_COMPILE))
        cells = " | ".join(cell(getattr(row, name), reached.get(name)) for name in ("ours", "eager", "compile"))
        print(
            f"{row.workload.name:16} | {cells} | {figure(row.of_eager, '5.2f')} {figure(row.of_compile, '7.2f')} "
            f"{row.verdict}{row.remarks()}",
            flush=True,
        )
        rows.append(row)
        written.append(row.as_json(bandwidth=reached, wanted=wanted))
    summary: dict[str, Any] = {
        "speed_against_eager": ratio(1.0, geometric_mean(row.of_eager for row in rows)),
        "speed_against_compile": ratio(1.0, geometric_mean(row.of_compile for row in rows)),
        "least_bandwidth": min(
            (row["bandwidth"]["ours"] for row in written if row["bandwidth"].get("ours")), default=None
        ),
    }
    eager, compiled, least = (figure(value, ".2f") for value in summary.values())
    print(
        f"geometric mean: {eager} times as fast as eager, {compiled} as torch.compile; least fraction of the ceiling "
        f"{least}"
    )
    if not on_gpu:
        summary["verdict"] = verdict(at_least(summary["speed_against_compile"], CPU_MEAN_SPEED))
        print(f"wanted: {CPU_MEAN_SPEED} times as fast as torch.compile: {summary['verdict']}")
    write_json(options.json, about, written, **summary)
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
