"""Where framejit works. Importing this module is the check; the rest of framejit may then rely on it."""
from __future__ import annotations

import platform
import sys
import sysconfig
import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from framejit.errors import FramejitWarning, UnsupportedEnvironment

PYTHON_FROM, PYTHON_BEFORE = (3, 11), (3, 16)
LOCK_OPTIONAL_FROM = (3, 14)
TORCH_FROM = (2, 11)
MACHINES = ("x86_64", "aarch64")


def check_interpreter() -> None:
    """The native core reads frames and code objects of CPython as these versions lay them out."""
    name, version = platform.python_implementation(), sys.version_info[:2]
    if name != "CPython" or not PYTHON_FROM <= version < PYTHON_BEFORE:
        raise UnsupportedEnvironment(
            f"framejit works with CPython 3.11 to 3.15, not with {name} {platform.python_version()}"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED") and version < LOCK_OPTIONAL_FROM:
        raise UnsupportedEnvironment("framejit does not work with free-threaded builds of CPython before 3.14")
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise UnsupportedEnvironment(
            f"framejit works on Linux x86-64 and aarch64, not on {platform.system()} {platform.machine()}"
        )


def check_main_interpreter() -> None:
    """The frame hook, the watcher of dictionaries and what is kept in code objects are one for the process."""
    modules = ("_interpreters", "_xxsubinterpreters")  # the second until CPython 3.12
    interpreters = next(
        (import_module(name) for name in modules if name in sys.builtin_module_names or find_spec(name)), None
    )
    if interpreters is None:
        return
    current, main = (
        found[0] if isinstance(found, tuple) else found
        for found in (interpreters.get_current(), interpreters.get_main())
    )
    if int(current) != int(main):
        raise UnsupportedEnvironment(
            "framejit works in the main interpreter of a process only, not in a subinterpreter"
        )


def enable_lock() -> None:
    """Nothing in the native core holds without the global interpreter lock, and it declares so: a free-threaded build
    enables its lock when the core is loaded, unless it was told not to. One sentence says which it was."""
    if lock_is_enabled():
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the interpreter's own sentence, which advises to keep it off
        import_module("framejit._native")
    if not lock_is_enabled():
        raise UnsupportedEnvironment(
            "framejit needs the global interpreter lock, which PYTHON_GIL=0 or -X gil=0 keeps from being enabled"
        )
    warnings.warn(
        "framejit does not work without the global interpreter lock yet: importing it has enabled the lock of this "
        "process",
        FramejitWarning,
        stacklevel=2,
    )


def lock_is_enabled() -> bool:
    """Always, but on free-threaded builds, which came with CPython 3.13."""
    asked: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return asked()


def parse_version(text: str) -> tuple[int, int]:
    """`2.13.0+cpu` as (2, 13)."""
    major, minor = text.split(".")[:2]
    return int(major), int(minor)


def check_torch() -> tuple[int, int]:
    """The version of torch, if it is one that framejit works with."""
    try:
        import torch
    except ModuleNotFoundError as e:
        raise UnsupportedEnvironment("framejit needs torch 2.11 or newer, and torch is not installed") from e
    version = parse_version(torch.__version__)
    if version < TORCH_FROM:
        raise UnsupportedEnvironment(f"framejit needs torch 2.11 or newer, not {torch.__version__}")
    return version


check_interpreter()
check_main_interpreter()
check_torch()
enable_lock()  # behind torch, whose symbols the native core looks up
