"""Where framejit does not work, importing it says so in one clear sentence."""
import platform
import subprocess
import sys
import sysconfig

import pytest
import torch

from framejit.environment import compat
from framejit.errors import UnsupportedEnvironment

import forked


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


@pytest.mark.parametrize(("version", "refused"), [((3, 13, 0), True), ((3, 14, 0), False), ((3, 15, 0), False)])
def test_free_threaded_builds(monkeypatch, version, refused):
    monkeypatch.setattr(sysconfig, "get_config_var", lambda name: 1)
    monkeypatch.setattr(sys, "version_info", version)
    if not refused:
        compat.check_interpreter()
        return
    with pytest.raises(UnsupportedEnvironment, match=r"free-threaded builds of CPython before 3\.14"):
        compat.check_interpreter()


# A free-threaded build enables its lock when it loads a module that needs it, and warns; not under PYTHON_GIL=0.
WITHOUT_LOCK = """
import sys, warnings

class Interpreter:
    def find_spec(self, name, path=None, target=None):
        if name == "framejit._native":
            warnings.warn("the interpreter's own sentence", RuntimeWarning)

sys.meta_path.insert(0, Interpreter())
sys._is_gil_enabled = lambda: {enabled}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    try:
        import framejit
    except ImportError as e:
        print(type(e).__name__, e, sep=": ")
    else:
        print(framejit.optimize(lambda x: x + 1)(2))
for warning in told:
    if warning.category.__name__ in ("FramejitWarning", "RuntimeWarning"):
        print(warning.category.__name__, warning.message, sep=": ")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("enabled", "expected"),
    [
        (
            "'framejit._native' in sys.modules",
            "3\nFramejitWarning: framejit does not work without the global interpreter lock yet: importing it has "
            "enabled the lock of this process\n",
        ),
        (
            "False",
            "UnsupportedEnvironment: framejit needs the global interpreter lock, which PYTHON_GIL=0 or -X gil=0 keeps "
            "from being enabled\n",
        ),
        ("True", "3\nRuntimeWarning: the interpreter's own sentence\n"),
    ],
    ids=["enabled by the import", "kept off", "enabled before"],
)
def test_import_without_the_lock(enabled, expected):
    done = forked.run(["-c", WITHOUT_LOCK.format(enabled=enabled)], timeout=60)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


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
