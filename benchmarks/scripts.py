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

import argparse
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
from measure import at_most, caches_in, figure, verdict, write_json

HERE = pathlib.Path(__file__).parent
TESTS = HERE.parent / "tests"
FILES = sorted([*(TESTS / "explain" / "programs").glob("*.py"), *(HERE / "programs").glob("*.py")])
CHILD = {"OMP_NUM_THREADS": "1"}
"""Threads of OpenMP that wait for work count as processor time."""
EXAMPLES = ("simple_timeit", "compare")
PROGRAMS = {path.stem: [str(path)] for path in FILES} | {
    name: ["-m", f"torch.utils.benchmark.examples.{name}"] for name in EXAMPLES
}
MOST_FIRST, MOST_SECOND = 1.1, 1.0
SLOWEST_S = 600
Times = tuple[float, float]
"""Wall time and processor time, in seconds."""


class Failed(Exception):
    """A program did not end as it should."""


def seconds(arguments: list[str], environment: dict[str, str]) -> tuple[Times, str]:
    """What a Python process takes, and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=SLOWEST_S
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Failed(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return (wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout


def one_round(name: str) -> dict[str, Times]:
    """The three sides of a program, with caches of their own."""
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    with tempfile.TemporaryDirectory(prefix="benchmark-caches-", ignore_cleanup_errors=True) as folder:
        environment = os.environ | CHILD | caches_in(folder) | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
        framejit = ["-m", "framejit", "run"]
        plain, said = seconds(PROGRAMS[name], environment)
        first, said_first = seconds([*framejit, *PROGRAMS[name]], environment)
        second, said_second = seconds([*framejit, *PROGRAMS[name]], environment)
    if name not in EXAMPLES and not said == said_first == said_second:
        raise Failed("run by framejit, it prints something else")
    return {"plain": plain, "first": first, "second": second}


def median(rounds: list[dict[str, Times]], side: str, kind: int, of: str | None = None) -> float:
    return statistics.median(each[side][kind] / (each[of][kind] if of else 1) for each in rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(PROGRAMS), metavar="NAMES",
        help=f"of {', '.join(PROGRAMS)}",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    options = parser.parse_args()
    unknown = sorted(set(options.only) - set(PROGRAMS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(PROGRAMS)}")
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
