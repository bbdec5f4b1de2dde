"""The native core compiles for the free-threaded build of CPython, on which importing it enables the lock."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "framejit" / "native"


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the headers of earlier releases declare less of that build")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_it_compiles_without_the_lock():
    include = sysconfig.get_paths()["include"]
    macros = ["-DPy_GIL_DISABLED=1"]
    folders = [f"-I{NATIVE}", f"-I{include}", f"-I{include}/internal"]
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
    sources = sorted(map(str, NATIVE.glob("**/*.c")))
    done = subprocess.run(
        ["gcc", "-std=gnu11", "-fsyntax-only", *macros, *folders, *warnings, *sources], capture_output=True, text=True
    )
    assert len(sources) > 40 and done.returncode == 0, done.stderr
