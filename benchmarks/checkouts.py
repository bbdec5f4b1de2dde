"""Whether framejit is slower than it was: benchmarks of two checkouts, in turns.

    git worktree add ../before COMMIT && make -C ../before test ARGS=--collect-only
    python benchmarks/checkouts.py ../before . [--only capture,kernels] [--rounds 3] [--json FILE]

Each checkout runs its own benchmarks with its own interpreter (`.venv/bin/python`, else this one), one whole program
after the other; every other round begins with the other checkout. Of each figure the median over the rounds before and
after, and their ratio; `plain` is the ratio of the same figure of eager, or of the bare call, which should be 1 on a
quiet machine. A figure is `worse` if it is more than a tenth above the one before, with what plain figures rose by left
out, and its least is as well. Ends with 1 if one is, or a program failed.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, Final

from measure import choice, figure, ratio

ALONE: Final = ["--impls", "ours,eager"]
PROGRAMS: Final[dict[str, list[str]]] = {
    "capture": ["--rounds", "1"], "overhead": [], "kernels": ALONE, "small_graphs": ALONE, "models": ALONE,
    "cold_start": ALONE,
}
"""Benchmarks, and what they are given besides `--json`."""
OURS: Final = ("ours", "framejit")
PLAIN: Final = {"ours": "eager", "framejit": "bare"}
"""For the name of our figures that of plain ones beside them."""
COSTS: Final = ("_s", "_us", "_mb", "_bytes", "seconds")
"""Ends of the names of figures that are to be small."""
CALLS: Final = ("framejit", "bare")
"""Names of the figures of calls in overhead.py."""
MOST: Final = 1.1
SLOWEST_S: Final = 3600
Figures = dict[tuple[str, ...], float]
"""Figures by where they stand in a report."""


def interpreter(checkout: pathlib.Path) -> str:
    own = checkout / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def run(checkout: pathlib.Path, program: str, arguments: list[str]) -> Figures:
    """The figures of a benchmark. Raises RuntimeError where it writes no report."""
    with tempfile.TemporaryDirectory(prefix="benchmark-report-") as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [interpreter(checkout), os.path.join("benchmarks", f"{program}.py"), *arguments, "--json", report]
        # its exit code tells of targets that were missed, too
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=SLOWEST_S)
        if not report.exists():
            raise RuntimeError(f"{program} of {checkout}: {(done.stderr.strip() or 'no report').splitlines()[-1]}")
        return dict(figures(json.loads(report.read_text())))


def figures(report: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Times and sizes in a report that are ours, or plain ones beside ours."""
    if isinstance(report, list):
        report = {str(row.get("name", i)): row for i, row in enumerate(report) if isinstance(row, dict)}
    for key, value in report.items() if isinstance(report, dict) else ():
        where = (*place, key)
        if isinstance(value, (dict, list)):
            yield from figures(value, where)
        elif isinstance(value, (int, float)) and any(name in where for name in (*OURS, *PLAIN.values())):
            if key.endswith(COSTS) or key in CALLS:
                yield where, float(value)


def rows(before: list[Figures], after: list[Figures]) -> Iterator[dict[str, Any]]:
    """A row for each figure of ours that both checkouts have in each round."""
    common = [place for place in before[0] if all(place in each for each in (*before, *after))]
    for place in common:
        if not any(name in place for name in OURS):
            continue
        old, new = ([each[place] for each in side] for side in (before, after))
        plain = tuple(PLAIN.get(part, part) for part in place)
        shared = plain in common
        beside = [statistics.median(each[plain] for each in side) for side in (before, after)] if shared else []
        changed = ratio(statistics.median(new), statistics.median(old))
        around = ratio(*reversed(beside)) if beside else None
        yield {
            "name": " ".join(part for part in place if part not in ("rows", "models", *OURS)) or place[-1],
            "before": statistics.median(old), "after": statistics.median(new), "ratio": changed,
            "plain": around,
            "worse": changed is not None and changed > MOST * max(1.0, around or 1.0) and min(new) > MOST * min(old),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument(
        "--only", type=choice(PROGRAMS), default=list(PROGRAMS), metavar="NAMES", help=f"of {', '.join(PROGRAMS)}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    options = parser.parse_args()
    sides = options.before.resolve(), options.after.resolve()
    written: dict[str, list[dict[str, Any]]] = {}
    failed = False
    for program in options.only:
        print(f"{program:44} {'before':>12} {'after':>12} {'ratio':>7} {'plain':>7}", flush=True)
        taken: tuple[list[Figures], list[Figures]] = ([], [])
        try:
            for turn in range(options.rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    taken[side].append(run(sides[side], program, PROGRAMS[program]))
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            print(f"    {e}", flush=True)
            failed = True
            continue
        written[program] = list(rows(*taken))
        for row in written[program]:
            failed |= row["worse"]
            print(
                f"    {row['name']:40} {row['before']:12.5g} {row['after']:12.5g} {figure(row['ratio'], '7.3f')} "
                f"{figure(row['plain'], '7.3f')}{' worse' if row['worse'] else ''}",
                flush=True,
            )
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(written, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
