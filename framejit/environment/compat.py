"""Where framejit works. Importing this module is the check; the rest of framejit may then rely on it."""
from __future__ import annotations

import platform
import sys
import sysconfig
from importlib import import_module
from importlib.util import find_spec

from framejit.errors import UnsupportedEnvironment

PYTHON_FROM, PYTHON_BEFORE = (3, 11), (3, 16)
TORCH_FROM = (2, 11)
MACHINES = ("x86_64", "aarch64")


def check_interpreter() -> None:
    """The native core reads frames and code objects of CPython as these versions lay them out."""
    name, version = platform.python_implementation(), sys.version_info[:2]
    if name != "CPython" or not PYTHON_FROM <= version < PYTHON_BEFORE:
        raise UnsupportedEnvironment(
            f"framejit works with CPython 3.11 to 3.15, not with {name} {platform.python_version()}"
        )
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise UnsupportedEnvironment("framejit does not work with the free-threaded build of CPython yet")
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
TORCH_VERSION = check_torch()
