"""`framejit check`: run a script, and fail where what became of its functions differs from the lock."""
from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
from typing import Any

from framejit import script
from framejit.config import config
from framejit.environment.saying import say
from framejit.events.ledger import ledger
from framejit.lock import lockfile
from framejit.lock.drift import drift
from framejit.lock.summary import portable, summarize

DRIFTED, UNKNOWN = 1, 2
"""Exit codes: something differs; the lock knows nothing to compare with."""


def add_parser(commands: Any) -> None:
    """Add the subcommand to those of the command line."""
    meaning = f"run a script and compare what became of its functions with {lockfile.NAME}"
    command = commands.add_parser(
        "check", help=meaning, description=f"{meaning}. Without a script: each script in the lock."
    )
    command.add_argument("--update", action="store_true", help="write the lock instead")
    command.add_argument(
        "--lock", metavar="FILE", default=lockfile.NAME,
        help="the lock (default: %(default)s); paths in it are from its folder",
    )
    command.add_argument("-m", dest="module", action="store_true", help="the target is a module, as for `python -m`")
    command.add_argument("--backend", help=f"what compiles the graphs (default: {config.default_backend})")
    command.add_argument("target", metavar="script.py", nargs="?", help="the script, or with -m the module")
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")


def check(options: argparse.Namespace) -> int:
    """The exit code. A script that fails by itself ends as it would anyhow, and nothing is compared or written."""
    path = os.path.abspath(options.lock)  # the script may change its folder
    try:
        lock = lockfile.read(path)
    except lockfile.NotALock as e:
        say(str(e))
        return UNKNOWN
    if options.target is None:
        return _check_all(lock, options)
    name = _name(options, lock.root)
    if not options.update and name not in lock.programs:
        say(f"{options.lock} knows nothing of {name}: write it with `framejit check --update {name}`")
        return UNKNOWN
    _run(options)
    now = summarize(ledger.records(), lock.root)
    if options.update:
        lock.programs[name] = now
        lock.write()
        return 0
    differences = drift(lock.programs[name], now)
    if differences:
        say("\n".join([f"{name} is not as {options.lock} says:", *(f"  {line}" for line in differences)]))
        say(f"if it is meant to be so: framejit check --update {name}")
    return DRIFTED if differences else 0


def _check_all(lock: lockfile.Lock, options: argparse.Namespace) -> int:
    """Each script in a process of its own, as it was run when the lock was written."""
    names = [name for name in lock.programs if "::" not in name]  # the others are tests, and pytest's
    if not names:
        say(f"{options.lock} names no script: write it with `framejit check --update script.py`")
        return UNKNOWN
    flags = [
        "--lock", os.path.abspath(lock.path), *(["--update"] if options.update else []),
        *(["--backend", options.backend] if options.backend else []),
    ]
    codes = [
        subprocess.run(
            [sys.executable, "-m", "framejit", "check", *flags, *shlex.split(name)], cwd=lock.root
        ).returncode
        for name in names
    ]
    return max(codes, key=abs)


def _name(options: argparse.Namespace, root: str) -> str:
    """How the lock calls the program: the command line from its folder."""
    target = ["-m", options.target] if options.module else [portable(options.target, root)]
    return shlex.join([*target, *options.arguments])


def _run(options: argparse.Namespace) -> None:
    try:
        with config.patch(keep_captures=False):  # else the lock would tell of runs that this machine has seen before
            script.run(options.target, options.arguments, as_module=options.module)
    except script.CannotRun as e:
        sys.exit(f"framejit: cannot run {options.target!r}: {e}")
    except SystemExit as e:
        if e.code not in (None, 0):
            raise
