"""Programs in which Triton interprets: that is chosen before Triton is imported, and so in another process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import forked


def interpreting() -> dict[str, str]:
    """An environment in which Triton interprets its kernels."""
    return {**os.environ, "TRITON_INTERPRET": "1"}


def printed(program: Path) -> Any:
    """What a program prints as JSON, in which Triton interprets."""
    done = forked.run(["-W", "ignore", program], env=interpreting(), timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def cases_of(program: Path) -> list[str]:
    """The names of a program's cases, of which each begins a line; it can't be imported where Triton does not
    interpret."""
    lines = program.read_text().splitlines()
    return [line.split('"')[1] for line in lines if line.startswith('    "') and ": lambda" in line]
