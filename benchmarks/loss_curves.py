"""Whole training by train_gpt.py, as it is and under `framejit run`: how far the losses are apart, beside how
far eager's own are from one seed to the next, what is compiled anew, and the wall time of either process.

    python benchmarks/loss_curves.py [--steps 300] [--device cuda] [--threads 1] [--json FILE] [-- SCRIPT'S OPTIONS]

Threads are one on CPUs: a machine that does other things, too, makes several wait for each other. Fails where the mean
of the last losses differs by more than eager's do with other seeds.
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
import time
from collections import Counter
from typing import Any

import torch

SCRIPT = pathlib.Path(__file__).resolve().with_name("train_gpt.py")
SEEDS = (0, 1, 2)
LAST = 50
"""How many losses are averaged at the end of a curve."""


def trained(folder: pathlib.Path, name: str, compiled: bool, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """A process that trains: its losses, what it printed, and how long it took."""
    losses, log = folder / f"{name}.json", folder / f"{name}.log"
    command = [sys.executable, *(["-m", "framejit", "run"] if compiled else []), str(SCRIPT)]
    command += ["--steps", str(options.steps), "--device", options.device, "--seed", str(seed)]
    command += ["--losses", str(losses), "--checkpoint", str(folder / f"{name}.pt"), *options.script]
    environment = {**os.environ, "FRAMEJIT_LOGS": f"graph_breaks,recompiles,file={log},json"}
    if options.device == "cpu":
        environment["OMP_NUM_THREADS"] = str(options.threads)
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    wall = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    made = json.loads(losses.read_text())
    lines = log.read_text().splitlines() if compiled and log.exists() else []
    kinds = Counter(json.loads(line)["kind"] for line in lines)
    return {**made, "wall_s": wall, "recompiles": kinds["recompile"], "breaks": kinds["graph_break"]}


def compared(eager: dict[str, Any], ours: dict[str, Any], others: list[dict[str, Any]]) -> dict[str, Any]:
    """How far two curves are apart, and how far eager's own with other seeds."""
    apart = [abs(one - other) for one, other in zip(ours["losses"], eager["losses"], strict=True)]
    ends = [statistics.mean(run["losses"][-LAST:]) for run in (eager, *others)]
    return {
        "steps": len(apart), "greatest_difference": max(apart), "mean_difference": statistics.mean(apart),
        "end": {"eager": ends[0], "framejit": statistics.mean(ours["losses"][-LAST:])},
        "end_difference": abs(statistics.mean(ours["losses"][-LAST:]) - ends[0]),
        "spread_over_seeds": max(ends) - min(ends),
        "wall_s": {"eager": eager["wall_s"], "framejit": ours["wall_s"]},
        "steps_s": {"eager": eager["seconds"], "framejit": ours["seconds"]},
        "recompiles": ours["recompiles"], "breaks": ours["breaks"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("script", nargs="*", help="options of the script, behind --")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        eager = [trained(folder, f"eager{seed}", False, options, seed) for seed in SEEDS]
        ours = trained(folder, "framejit", True, options, SEEDS[0])
    found = compared(eager[0], ours, eager[1:])
    print(f"{found['steps']} steps, {options.device}, torch {torch.__version__}")
    print(
        f"losses differ by {found['greatest_difference']:.2e} at most, {found['mean_difference']:.2e} in the mean; the "
        f"last {LAST} by {found['end_difference']:.2e} in the mean (eager {found['end']['eager']:.4f}, framejit "
        f"{found['end']['framejit']:.4f}); eager's with seeds {SEEDS} by {found['spread_over_seeds']:.2e}"
    )
    for what, key in (("process", "wall_s"), ("steps", "steps_s")):
        times = found[key]
        print(
            f"{what:8} eager {times['eager']:7.1f} s, framejit {times['framejit']:7.1f} s, ratio "
            f"{times['framejit'] / times['eager']:.2f}"
        )
    print(f"compiled anew {found['recompiles']} times, graph breaks at {found['breaks']} places")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(found["end_difference"] > found["spread_over_seeds"])


if __name__ == "__main__":
    sys.exit(main())
