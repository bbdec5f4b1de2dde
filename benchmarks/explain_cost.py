"""What `framejit explain` costs: existing programs as `python program.py` and as `framejit explain program.py`, whole
processes, in turns.

    python benchmarks/explain_cost.py [--only detection,generate] [--rounds 3] [--rewrites quick|all] [--json FILE]

Seconds. `plain` and `explain` are wall time, start of Python and imports included; `compile` is the sum of `seconds`
over the report's frames, `search` the time in which rewrites were looked for. Of the rounds, the one with the median
ratio. `of plain` is (explain - compile) / plain; wanted: at most 2. `found` counts the findings, `checked` those with a
checked rewrite, `no time` those for whose rewrite none was left. Kernels come from an empty cache in the first round
and from a warm one in the others. Programs whose libraries are not installed are left out, with the reason.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass

import torch
from measure import at_most, caches_in, figure, verdict, write_json

TESTS = pathlib.Path(__file__).parents[1] / "tests"
PROGRAMS = {path.stem: path for path in sorted((TESTS / "explain" / "programs").glob("*.py"))}
MOST = 2.0
SLOWEST_S = 600


@dataclass
class Round:
    """A program run once plain and once explained; seconds."""

    plain_s: float
    explain_s: float
    compile_s: float
    search_s: float
    findings: int
    checked: int
    no_time: int

    @property
    def of_plain(self) -> float:
        return (self.explain_s - self.compile_s) / self.plain_s


class Failed(Exception):
    """A program did not end as it should."""


def seconds(arguments: list[str], environment: dict[str, str]) -> tuple[float, str]:
    """What a Python process takes, and what it prints."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=SLOWEST_S
    )
    took = time.perf_counter() - start
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Failed(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return took, done.stdout


def measured(program: pathlib.Path, rewrites: str, folder: str) -> Round:
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    environment = os.environ | caches_in(folder) | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}
    report = pathlib.Path(folder) / "report.json"
    plain_s, plain = seconds([str(program)], environment)
    explain_s, explained = seconds(
        ["-m", "framejit", "explain", "--rewrites", rewrites, "--json", str(report), str(program)], environment
    )
    if plain != explained:
        raise Failed("explained, it prints something else")
    from framejit.findings.rewrites.propose import NO_TIME

    data = json.loads(report.read_text())
    findings, cost = data["findings"], data["cost"]
    checked, no_time = sum(f["rewrite_checked"] for f in findings), sum(f["rewrite_note"] == NO_TIME for f in findings)
    return Round(plain_s, explain_s, cost["compiling_s"], cost["rewrites_s"], len(findings), checked, no_time)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=lambda text: text.split(","), default=list(PROGRAMS), metavar="NAMES",
        help=f"of {', '.join(PROGRAMS)}",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rewrites", choices=("quick", "all"), default="quick")
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    options = parser.parse_args()
    unknown = sorted(set(options.only) - set(PROGRAMS))
    if unknown:
        parser.error(f"{', '.join(unknown)}: there are {', '.join(PROGRAMS)}")
    about = {
        "torch": torch.__version__, "python": platform.python_version(), "cores": os.cpu_count(),
        "rewrites": options.rewrites, "rounds": options.rounds,
    }
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"{'':14} |   plain explain compile  search | of plain       | found checked no time", flush=True)
    rows, failed = [], False
    for name in options.only:
        try:
            with tempfile.TemporaryDirectory(prefix="benchmark-caches-", ignore_cleanup_errors=True) as folder:
                rounds = sorted(
                    (measured(PROGRAMS[name], options.rewrites, folder) for _ in range(options.rounds)),
                    key=lambda taken: taken.of_plain,
                )
        except (Failed, subprocess.TimeoutExpired) as e:
            print(f"{name:14} | cannot be run here: {e}", flush=True)
            failed |= not str(e).startswith("ModuleNotFoundError")
            rows.append({"name": name, "error": str(e)})
            continue
        taken = rounds[len(rounds) // 2]
        times = " ".join(
            figure(value, "7.2f") for value in (taken.plain_s, taken.explain_s, taken.compile_s, taken.search_s)
        )
        judged = verdict(at_most(taken.of_plain, MOST))
        print(
            f"{name:14} | {times} | {taken.of_plain:8.2f} {judged:5} | {taken.findings:5} {taken.checked:7} "
            f"{taken.no_time:7}",
            flush=True,
        )
        rows.append(
            {
                "name": name, **asdict(taken), "of_plain": taken.of_plain, "verdict": judged,
                "rounds": [asdict(each) for each in rounds],
            }
        )
    write_json(options.json, about, rows, wanted=MOST)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
