"""Pages of documentation as programs: the files they show are written, the commands they show are run, the outputs they
show are compared.

A Python block whose first line is `# name.py` is that file. A `console` block has commands behind `$ `, each followed
by its output, standard error included. In it `…` stands for text that differs from run to run, and a line of `...` for
any number of lines.
"""
from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forked

ROOT = Path(__file__).parents[2]
SHOWN = ("examples", "tests")  # folders of the repository that commands may name

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)
_PLAIN = re.compile(r"(?P<settings>(?:[A-Z_]+=[\w,-]+ )*)(?P<command>python|framejit) (?P<arguments>[^;|<>&$*]+)")
"""A command of one program and nothing of a shell's."""
_FILE = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Command:
    """A command of a page and the output that the page shows."""

    line: str
    output: str

    @property
    def pattern(self) -> str:
        """The output as a regular expression."""
        lines = (
            r"(?:.*\n)*?" if line == "..." else re.escape(line.rstrip()).replace("…", ".*") + r"\n"
            for line in self.output.splitlines()
        )
        return "".join(lines)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """The fenced blocks of a page: language and text."""
    for found in _BLOCK.finditer(page.read_text()):
        yield found[1], found[2]


def prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text())


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        line, _, output = part.partition("\n")
        yield Command(line, output)


def file_name(text: str) -> str | None:
    """The name that a Python block gives itself."""
    found = _FILE.match(text)
    return found and found[1]


def prepare(workplace: Path) -> dict[str, str]:
    """An environment for the commands: this interpreter's `python` and `framejit`, nothing of the caller's settings,
    caches of their own."""
    for name in SHOWN:
        (workplace / name).symlink_to(ROOT / name)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FRAMEJIT_")}
    # the plugin is one of the root's modules
    first = {"PATH": os.path.dirname(sys.executable), "PYTHONPATH": str(ROOT)}
    paths = {name: os.pathsep.join(filter(None, [folder, kept.get(name)])) for name, folder in first.items()}
    return {
        **kept, **paths, "PYTEST_PLUGINS": "pytest_framejit", "FRAMEJIT_CACHE_DIR": str(workplace / "cache"),
        "PYTHONUNBUFFERED": "1",  # as before a terminal, where what pages show comes from
    }


def run(command: Command, folder: Path, environment: dict[str, str]) -> str:
    """What a command writes, standard output and standard error together, lines without blanks at their ends."""
    plain = _PLAIN.fullmatch(command.line)
    if plain is None:  # for a shell to run
        written = subprocess.run(
            ["bash", "-c", command.line], cwd=folder, env=environment, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=240,
        ).stdout
    else:
        settings = dict(setting.split("=", 1) for setting in plain["settings"].split())
        arguments = shlex.split(plain["arguments"])
        if plain["command"] == "framejit":
            arguments = [str(Path(sys.executable).with_name("framejit")), *arguments]
        settings = {**environment, **settings}
        written = forked.run(arguments, cwd=folder, env=settings, timeout=240, together=True).stdout
    return "".join(f"{line.rstrip()}\n" for line in written.splitlines())
