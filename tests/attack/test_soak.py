"""Sixteen threads for twenty seconds; `make soak MINUTES=30` takes longer."""
from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

from tests.attack.soak import Soak


@pytest.mark.slow
def test_threads_agree_with_plain_python() -> None:
    """In a process of its own: threads that hang can't be ended otherwise."""
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.attack", "soak", "--minutes", "0.3"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert int(done.stdout.splitlines()[-1].split()[0]) >= 16


def test_a_difference_is_framejits_only_if_plain_python_is_steady() -> None:
    answers = iter([1.0, 3.0, 2.0])
    soak = Soak(0)
    soak.plain, soak.shared = lambda: next(answers), lambda: 3.0
    soak.compare_shared()
    assert not soak.differences and len(soak.unsteady) == 1
    soak.plain, soak.shared = lambda: 1.0, lambda: 3.0
    soak.compare_shared()
    assert len(soak.differences) == 1 and "expected" in soak.differences[0].split("once more")[1]
    soak.shared = lambda: 1.0
    soak.compare_shared()
    assert len(soak.differences) == len(soak.unsteady) == 1
