"""Existing programs, each in a Python process of its own: what it takes and prints."""
from __future__ import annotations

import argparse
import os
import pathlib
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from typing import NamedTuple

from measure import caches_in, choice

TESTS = pathlib.Path(__file__).parents[1] / "tests"
PROGRAMS = TESTS / "explain" / "programs"
SLOWEST_S = 600


class Failed(Exception):
    """A program did not end as it should."""


class Times(NamedTuple):
    """Of a process and those that it has waited for; seconds."""

    wall: float
    processor: float


def command(description: str | None, programs: Iterable[str]) -> argparse.ArgumentParser:
    """A parser with the options of all commands that run programs; `--only` chooses among these."""
    names = list(programs)
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", type=choice(names), default=names, metavar="NAMES", help=f"comma-separated, of {', '.join(names)}"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", metavar="FILE", help="also write the figures, unrounded")
    return parser


def environment(caches: str) -> dict[str, str]:
    """What the programs find: the tests' modules, and empty caches of compilers in this folder."""
    paths = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    return os.environ | caches_in(caches) | {"PYTHONPATH": paths, "PYTHONWARNINGS": "ignore"}


def run(arguments: list[str], environment: dict[str, str]) -> tuple[Times, str]:
    """What a Python process takes, and what it prints. Raises Failed if its exit code is not 0, and TimeoutExpired
    after ten minutes."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=SLOWEST_S
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise Failed(lines[-1][:200] if lines else f"exit code {done.returncode}")
    return Times(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime), done.stdout
