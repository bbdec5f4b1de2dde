"""What the native core reads of CPython's internals is checked at import; where CPython has moved something, the part
is off and the answers are the same."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from framejit import _native as native
from framejit.environment import cpython_layout

import forked

PARTS = tuple(cpython_layout.CONSEQUENCES)
NATIVE = Path(native.__file__).parent


def test_every_part_is_read_natively_here():
    assert native.cpython_layout() == cpython_layout.LAYOUT == dict.fromkeys(PARTS, True)
    assert cpython_layout.report(cpython_layout.LAYOUT) == ""


def test_the_sentence_names_parts_and_consequences_once():
    sentence = cpython_layout.report({**dict.fromkeys(PARTS, True), "dicts": False, "types": False})
    assert "lays out its dicts, types otherwise" in sentence
    assert sentence.count("guards are evaluated in full") == 1


def test_wrong_contents_are_noticed():
    d = {"a": 1.5, "b": 2.5}
    keys, values = tuple(d), tuple(d.values())
    assert native.check_dict(d, keys, values, False)
    assert not native.check_dict(d, keys[::-1], values, False)
    assert not native.check_dict(d, keys, values[::-1], False)
    assert not native.check_dict(d, (*keys, "c"), (*values, 3.5), False)
    with pytest.raises(ValueError):
        native.check_frames(test_wrong_contents_are_noticed, test_wrong_contents_are_noticed.__code__)
    with pytest.raises(ValueError):
        native.set_cpython_layout("nothing", True)


# Runs with parts of the layout switched off; the answers must be those of plain Python.
PROGRAM = """
import sys, warnings
import torch
import framejit
from framejit import _native

class Part:
    def __init__(self): self.scale, self.names = 2.0, {"a": 1, "b": 2}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(3, 3) for _ in range(6))
        self.part = Part()
    def forward(self, x):
        for layer in self.layers:
            x = layer(x) * self.part.scale
        for name in self.part.names:
            x = x + len(name)
        print("", end="")
        return below(x, self.part)

def below(x, part):
    return x * FACTOR + part.names["b"]

FACTOR = 3
model, x = Model(), torch.ones(2, 3)
compiled = framejit.optimize(model, backend="eager")
for change in (None, None, None, "scale", "names", "key", "global", None):
    if change == "scale": model.part.scale = 5.0
    if change == "names": model.part.names["b"] = 7
    if change == "key": model.part.names["ccc"] = 1
    if change == "global": FACTOR = 4
    for _ in range(6):
        assert torch.equal(compiled(x), model(x)), change
"""


@pytest.mark.parametrize("part", PARTS)
def test_programs_run_the_same_without_a_part(part):
    off = f"import framejit._native as n; n.set_cpython_layout({part!r}, False)\n"
    done = forked.run(["-c", off + PROGRAM], timeout=300)
    assert done.returncode == 0, done.stderr


# Before which field of which structure there is another one; the name of the header differs by release.
MOVED = {"dicts": "PyDictKeysObject *ma_keys;", "frames": "char owner;", "codes": "void *co_extra;"}


def _headers_with_a_field_more(part: str, folder: Path) -> Path:
    include = Path(shutil.copytree(sysconfig.get_paths()["include"], folder / "include"))
    for path in sorted(include.rglob("*.h")):
        text = path.read_text()
        if MOVED[part] in text:
            path.write_text(text.replace(MOVED[part], f"void *new_field; {MOVED[part]}", 1))
            return include
    raise AssertionError(f"no header has {MOVED[part]!r}")


@pytest.mark.slow
@pytest.mark.parametrize("part", sorted(MOVED))
def test_built_for_another_layout(part, tmp_path):
    """The extension as it would be for a CPython whose structure has a field more, in this CPython."""
    include = _headers_with_a_field_more(part, tmp_path)
    package = Path(shutil.copytree(NATIVE, tmp_path / "framejit", ignore=shutil.ignore_patterns("*.so", "__pycache__")))
    for mapped in ("guards", "backends"):
        shutil.copytree(NATIVE.parent / mapped, package / mapped, ignore=shutil.ignore_patterns("__pycache__"))
    library = package / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = [
        "-std=gnu11", "-O0", "-w", "-shared", "-fPIC", f"-I{NATIVE / 'native'}", f"-I{include}",
        f"-I{include}/internal",
    ]
    subprocess.run(
        ["gcc", *flags, *map(str, sorted((NATIVE / "native").rglob("*.c"))), "-ldl", "-o", str(library)],
        check=True,
        timeout=600,
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); sys.meta_path = [f for f in sys.meta_path if 'editable' "
        "not in repr(f).lower()]\n"
    )
    program += f"import framejit; assert framejit.__file__.startswith({str(tmp_path)!r})\n" + PROGRAM
    done = forked.run(["-c", program], timeout=300, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    sentences = [line for line in done.stderr.splitlines() if "FramejitWarning" in line]
    assert len(sentences) == 1 and "otherwise than framejit was built for" in sentences[0] and part in sentences[0], (
        done.stderr
    )
