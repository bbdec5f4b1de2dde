"""Graphs so small that a call costs more than the work: framejit, eager and torch.compile in turns in one run, checked
against float64.

    python benchmarks/small_graphs.py [--device cpu] [--only tiny_op,small_mlp] [--impls ours,eager,compile]
        [--json FILE]

`us` is microseconds a call until the device is done, with half the range of the rounds in percent; `host` until the
call returns, in a stream of calls; `of ...` is our time over theirs. Wanted, of eager's time:
  (x + y).relu() * 2   GPU at most 0.35, CPU at most 1.2 us
  all others           not slower: at most 1.00, and 2 % for noise
"""
from __future__ import annotations

import sys

from measure import (
    CLOCK_NOISE,
    Result,
    Row,
    at_most,
    command,
    describe,
    exit_code,
    figure,
    run_all,
    setting,
    use_empty_caches,
    write_json,
)
from workloads import of_kind

OF_EAGER = {("tiny_op", "cuda"): 0.35}
SECONDS = {("tiny_op", "cpu"): 1.2e-6}


def cell(result: Result) -> str:
    if result.seconds is None or result.host_s is None:
        return f"{'-':>9} {'':5} {'-':>8}"
    return f"{result.seconds * 1e6:9.2f} ±{result.noise:4.0%} {result.host_s * 1e6:8.2f}"


def judge(row: Row, device: str) -> str:
    """Judges the row and says what was wanted of it."""
    key = (row.workload.name, device)
    if key in SECONDS:
        row.judge(at_most(row.ours.seconds, SECONDS[key]))
        return f"{SECONDS[key] * 1e6:.2f} us"
    limit = OF_EAGER.get(key, CLOCK_NOISE)
    row.judge(at_most(row.of_eager, limit))
    return f"{limit:.2f} of eager"


def main() -> int:
    graphs = of_kind("small")
    options = command(__doc__, graphs).parse_args()
    use_empty_caches()
    s = setting(options)
    about = describe(s, options)
    side = f"{'us':>9} {'':5} {'host':>8}"
    print(f"{'':16} | {'framejit':^24} | {'eager':^24} | {'torch.compile':^24} |   of     of    at most")
    print(f"{'':16} | {side} | {side} | {side} | eager compile", flush=True)
    rows, written = [], []
    for _, row in run_all([graphs[name] for name in options.only], s, options):
        wanted = judge(row, s.device)
        cells = " | ".join(cell(result) for result in (row.ours, row.eager, row.compile))
        ratios = f"{figure(row.of_eager, '5.3f')} {figure(row.of_compile, '7.3f')}"
        print(f"{row.workload.name:16} | {cells} | {ratios}  {wanted} {row.verdict}{row.remarks()}", flush=True)
        rows.append(row)
        written.append(row.as_json(wanted=wanted))
    write_json(options.json, about, written)
    return exit_code(rows)


if __name__ == "__main__":
    sys.exit(main())
