"""A folder with a project, and commands run in it."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

import forked

ROOT = pathlib.Path(__file__).parents[2]


class Project:
    """Writes files, and runs Python in their folder."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def change(self, name: str, old: str, new: str) -> None:
        text = (self.folder / name).read_text()
        assert old in text
        (self.folder / name).write_text(text.replace(old, new))

    def python(self, *arguments: str, fresh: bool = False) -> subprocess.CompletedProcess:
        """`fresh`: in a process that has imported nothing."""
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        if fresh:
            return subprocess.run(
                [sys.executable, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True,
                timeout=240,
            )
        return forked.run(arguments, cwd=self.folder, env=environment, timeout=240)

    def check(self, *arguments: str) -> subprocess.CompletedProcess:
        return self.python("-m", "framejit", "check", *arguments)

    def pytest(self, *arguments: str, fresh: bool = False) -> subprocess.CompletedProcess:
        return self.python(
            "-m", "pytest", "-q", "-p", "pytest_framejit", "-p", "no:cacheprovider", *arguments, fresh=fresh
        )


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)
