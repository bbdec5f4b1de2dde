"""Sixteen threads for a minute; `make soak MINUTES=30` takes longer."""
from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest


@pytest.mark.slow
def test_threads_agree_with_plain_python() -> None:
    """In a process of its own: threads that hang can't be ended otherwise."""
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.attack", "soak", "--minutes", "1"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) > 16
