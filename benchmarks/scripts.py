"""What `framejit run` makes of existing scripts: unchanged programs as `python program.py` and as
`framejit run program.py`, whole processes, in turns.

    python benchmarks/scripts.py [--only detection,compare] [--rounds 3] [--json FILE]

The programs are those of `tests/explain/programs`, two of torch's own examples (`python -m`), which time operations,
and two of `benchmarks/programs`, which use transformers and scipy. Seconds of wall time, start of Python, imports and
compiling included, with one thread of OpenMP, and below `processor` those of all threads. `first` finds nothing on the
disk, `second` what the first has left there. Each round has all three; what is printed is the median over the rounds of
each ratio to plain. Wanted: at most 1.1 of plain on the first run, 1.0 on the second. Programs whose libraries are not
installed are left out, with the reason.
"""
from __future__ import annotations

import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
from typing import Any

import torch
from measure import at_most, figure, verdict, write_json
from processes import PROGRAMS as EXPLAINED
from processes import Failed, Times, command, environment, run

HERE = pathlib.Path(__file__).parent
FILES = sorted([*EXPLAINED.glob("*.py"), *(HERE / "programs").glob("*.py")])
CHILD = {"OMP_NUM_THREADS": "1"}
"""Threads of OpenMP that wait for work count as processor time."""
EXAMPLES = ("simple_timeit", "compare")
PROGRAMS = {path.stem: [str(path)] for path in FILES} | {
    name: ["-m", f"torch.utils.benchmark.examples.{name}"] for name in EXAMPLES
}
MOST_FIRST, MOST_SECOND = 1.1, 1.0


def one_round(name: str) -> dict[str, Times]:
    """The three sides of a program, with caches of their own."""
    with tempfile.TemporaryDirectory(prefix="benchmark-caches-", ignore_cleanup_errors=True) as folder:
        found = environment(folder) | CHILD
        framejit = ["-m", "framejit", "run"]
        plain, said = run(PROGRAMS[name], found)
        first, said_first = run([*framejit, *PROGRAMS[name]], found)
        second, said_second = run([*framejit, *PROGRAMS[name]], found)
    if name not in EXAMPLES and not said == said_first == said_second:
        raise Failed("run by framejit, it prints something else")
    return {"plain": plain, "first": first, "second": second}


def median(rounds: list[dict[str, Times]], side: str, kind: int, of: str | None = None) -> float:
    return statistics.median(each[side][kind] / (each[of][kind] if of else 1) for each in rounds)


def main() -> int:
    options = command(__doc__, PROGRAMS).parse_args()
    about = {
        "torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count(),
        "rounds": options.rounds,
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"{'':14} |   plain   first  second |      first/plain     second/plain | processor first second", flush=True)
    rows: list[dict[str, Any]] = []
    failed = False
    for name in options.only:
        try:
            rounds = [one_round(name) for _ in range(options.rounds)]
        except (Failed, subprocess.TimeoutExpired) as e:
            print(f"{name:14} | cannot be run here: {e}", flush=True)
            failed |= not str(e).startswith("ModuleNotFoundError")
            rows.append({"name": name, "error": str(e)})
            continue
        times = " ".join(figure(median(rounds, side, 0), "7.2f") for side in ("plain", "first", "second"))
        first, second = (median(rounds, side, 0, "plain") for side in ("first", "second"))
        cpu_first, cpu_second = (median(rounds, side, 1, "plain") for side in ("first", "second"))
        print(
            f"{name:14} | {times} | {first:10.2f} {verdict(at_most(first, MOST_FIRST)):5} "
            f"{second:10.2f} {verdict(at_most(second, MOST_SECOND)):5} | {cpu_first:15.2f} {cpu_second:6.2f}",
            flush=True,
        )
        rows.append(
            {
                "name": name, "first_of_plain": first, "second_of_plain": second,
                "processor_first_of_plain": cpu_first, "processor_second_of_plain": cpu_second,
                "rounds": rounds,
            }
        )
    write_json(options.json, about, rows, wanted={"first": MOST_FIRST, "second": MOST_SECOND})
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
