"""Where framejit does not work, importing it says so in one clear sentence."""
import platform
import subprocess
import sys
import sysconfig

import pytest
import torch

from framejit.environment import compat
from framejit.errors import UnsupportedEnvironment


@pytest.mark.parametrize("version", [(3, 10, 0), (3, 16, 0)])
def test_other_versions_of_python(monkeypatch, version):
    monkeypatch.setattr(sys, "version_info", version)
    with pytest.raises(UnsupportedEnvironment, match=r"framejit works with CPython 3\.11 to 3\.15, not with CPython"):
        compat.check_interpreter()


def test_an_unknown_release():
    """Importing framejit there says one sentence, before torch or anything native is loaded."""
    program = """
import platform, sys, sysconfig
sys.version_info, platform.python_version = (3, 16, 0, "alpha", 1), lambda: "3.16.0a1"
try:
    import framejit
except ImportError as e:
    print(e)
assert "framejit._native" not in sys.modules and "torch" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (
        0,
        "framejit works with CPython 3.11 to 3.15, not with CPython 3.16.0a1\n",
    ), done.stderr


def test_another_interpreter(monkeypatch):
    monkeypatch.setattr(platform, "python_implementation", lambda: "PyPy")
    with pytest.raises(UnsupportedEnvironment, match="not with PyPy"):
        compat.check_interpreter()


def test_free_threaded_builds(monkeypatch):
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1)
    with pytest.raises(UnsupportedEnvironment, match="free-threaded"):
        compat.check_interpreter()


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "riscv64")])
def test_other_platforms(monkeypatch, system, machine):
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(UnsupportedEnvironment, match=f"Linux x86-64 and aarch64, not on .* {machine}"):
        compat.check_interpreter()


@pytest.mark.parametrize("version", ["1.13.1", "2.10.0+cu126"])
def test_an_older_torch(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(UnsupportedEnvironment) as caught:
        compat.check_torch()
    assert str(caught.value) == f"framejit needs torch 2.11 or newer, not {version}"


@pytest.mark.parametrize(
    ("version", "parsed"),
    [("2.11.0", (2, 11)), ("2.13.0+cpu", (2, 13)), ("2.16.0a0+gitabc", (2, 16)), ("3.0.0.dev20270101", (3, 0))],
)
def test_newer_torches(monkeypatch, version, parsed):
    monkeypatch.setattr(torch, "__version__", version)
    assert compat.check_torch() == parsed


def test_no_torch():
    program = "import sys; sys.modules['torch'] = None; import framejit"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        done.stderr.splitlines()[-1]
        == "framejit.errors.UnsupportedEnvironment: framejit needs torch 2.11 or newer, and torch is not installed"
    )


def test_it_is_an_import_error():
    assert issubclass(UnsupportedEnvironment, ImportError)
