"""How the outputs that pages show are compared."""
import re

import pytest

from pages import Command, commands, file_name


@pytest.mark.parametrize(
    ("shown", "output", "equal"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a\nc", False),
        ("took … ms\n", "took 12.5 ms", True),
        ("took … ms\n", "took 1\n2 ms", False),
        ("a\n...\nd\n", "a\nb\nc\nd", True),
        ("a\n...\nd\n", "a\nd", True),
        ("a\n...\n", "a\nb\nc", True),
        ("...\nc\n", "a\nb\nc", True),
        ("...\nc\n...\n", "a\nc\nb", True),
        ("...\nx\n...\n", "a\nc\nb", False),
        ("(.*)\n", "(.*)", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_outputs(shown, output, equal):
    assert bool(re.fullmatch(Command("", shown).pattern, output and output + "\n")) is equal


def test_commands_and_names():
    assert list(commands("$ a b\nout\n$ c\n")) == [Command("a b", "out\n"), Command("c", "")]
    assert file_name("# a_b.py\nimport torch\n") == "a_b.py" and file_name("import torch\n") is None
