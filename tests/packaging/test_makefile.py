"""`make` sets up the environment that it was asked for."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def make(tmp_path):
    """`make` in a folder of its own, where the commands that it would give to Python and pip do nothing or fail."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "env").mkdir()

    def run(*words: str, works: bool = True) -> bool:
        """Whether torch was installed."""
        pip = "echo pip" if works else "false"
        command = ["make", "env/torch.stamp", "VENV=env", "PYTHON=true", f"PIP={pip}", *words]
        environment = {name: value for name, value in os.environ.items() if name not in ("TORCH", "MAKEFLAGS")}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 0) == works, done.stdout + done.stderr
        return "pip" in done.stdout

    return run


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_another_torch_takes_the_place_of_the_one_that_is_there(make):
    assert make("TORCH=torch==2.15.0")
    assert not make("TORCH=torch==2.15.0")
    assert not make()  # whatever is there will do
    make("TORCH=torch==2.16.0", works=False)
    assert make("TORCH=torch==2.16.0")
    assert not make("TORCH=torch==2.16.0") and not make()
    assert make("TORCH=--pre torch")
