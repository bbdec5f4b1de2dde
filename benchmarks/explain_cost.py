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

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass

import torch
from measure import at_most, figure, verdict, write_json
from processes import PROGRAMS, Failed, command, environment, run

FILES = {path.stem: path for path in sorted(PROGRAMS.glob("*.py"))}
MOST = 2.0


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


def measured(program: pathlib.Path, rewrites: str, folder: str) -> Round:
    found = environment(folder)
    report = pathlib.Path(folder) / "report.json"
    (plain_s, _), plain = run([str(program)], found)
    (explain_s, _), explained = run(
        ["-m", "framejit", "explain", "--rewrites", rewrites, "--json", str(report), str(program)], found
    )
    if plain != explained:
        raise Failed("explained, it prints something else")
    from framejit.findings.rewrites.propose import NO_TIME

    data = json.loads(report.read_text())
    findings, cost = data["findings"], data["cost"]
    checked, no_time = sum(f["rewrite_checked"] for f in findings), sum(f["rewrite_note"] == NO_TIME for f in findings)
    return Round(plain_s, explain_s, cost["compiling_s"], cost["rewrites_s"], len(findings), checked, no_time)


def main() -> int:
    parser = command(__doc__, FILES)
    parser.add_argument("--rewrites", choices=("quick", "all"), default="quick")
    options = parser.parse_args()
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
                    (measured(FILES[name], options.rewrites, folder) for _ in range(options.rounds)),
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
