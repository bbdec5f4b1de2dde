"""Which frames the hook leaves alone, and which code can't be moved into another frame. Imported without the compiler:
in a process that only runs what others have captured, too."""

from __future__ import annotations

import dis
import os
import sysconfig
from functools import cache
from types import CodeType
from typing import Any

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_STDLIB = sysconfig.get_paths()["stdlib"]
_FRAME_ATTRIBUTES = frozenset(("_getframe", "currentframe"))
_VARIABLE_READERS = frozenset(("locals", "eval"))
_FRAME_READERS = _VARIABLE_READERS | {"exec"} | _FRAME_ATTRIBUTES
_NAME_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")  # a method may be called `eval`
_OF_MODULES = ("torch.nn.modules.container", "torch.nn.modules.transformer")
"""Modules of torch's whose functions are worth capturing: they run modules of the program, or many of torch's."""
_WHOLE = {"torch.utils.hooks": ("RemovableHandle.remove",)}
"""By their modules functions that are made for real as a whole where they break the graph. What a part of this one
would look at is the number of a hook: it counts up through a process, so that no entry would serve twice."""
_READERS_WITHOUT_ARGUMENTS = frozenset(("vars", "dir"))


@cache
def module_in(name: str, prefixes: tuple[str, ...]) -> bool:
    """Whether a module is one of those, or part of one."""
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def frame_reader(code: CodeType, whole: bool = False) -> str | None:
    """Why code can't be moved into another frame, or None. With `whole`, why it can't even be captured as a whole."""
    used = _names_used(code, _FRAME_READERS - _VARIABLE_READERS if whole else _FRAME_READERS)
    if not used and not _READERS_WITHOUT_ARGUMENTS.isdisjoint(code.co_names):
        used = _called_without_arguments(code)
    return f"{code.co_qualname} uses {min(used)}(), which looks at its own frame" if used else None


def _names_used(code: CodeType, wanted: frozenset[str]) -> frozenset[str]:
    used = wanted.intersection(code.co_names)
    if not used:
        return used
    return used.intersection(
        ins.argval for ins in dis.get_instructions(code) if ins.opname in _NAME_LOADS or ins.argval in _FRAME_ATTRIBUTES
    )


def is_indivisible(code: CodeType, globals: dict[str, Any]) -> bool:
    """Whether code is captured as a whole or not at all: what asks for its variables by name is."""
    named = code.co_qualname in _WHOLE.get(globals.get("__name__") or "", ())
    return named or bool(_names_used(code, _VARIABLE_READERS))


def _called_without_arguments(code: CodeType) -> frozenset[str]:
    """Which of vars and dir the code calls without arguments, which then speak of its frame."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("PRECALL", "PUSH_NULL", "CACHE")]
    pairs = zip(instructions, instructions[1:])
    called = {
        a.argval for a, b in pairs if a.opname in ("LOAD_GLOBAL", "LOAD_NAME") and b.opname == "CALL" and b.arg == 0
    }
    return _READERS_WITHOUT_ARGUMENTS & called


def may_capture(code: CodeType, globals: dict[str, Any]) -> bool | None:
    """Whether frames of `code`, seen by the hook, are worth and safe to capture. None for the code of a library's
    module: importing one is thousands of calls that nobody makes again, of which none is to be looked at."""
    name = globals.get("__name__") or ""
    file = code.co_filename
    if code.co_name == "<module>":
        return None if name != "__main__" and _is_of_a_library(file) else False
    if file.startswith("<") and not file.startswith("<ipython"):
        return False
    if file.startswith((PACKAGE + os.sep, _STDLIB + os.sep)) and not _is_installed(file):
        return False
    if module_in(name, _OF_MODULES):
        return True
    if module_in(name, ("torch", "framejit", "numpy", "bytecode", "triton", "llvmlite", "_pytest", "pytest")):
        return False
    if name.startswith("__editable__"):  # setuptools' finders of what is installed so, which belong to importing
        return False
    return frame_reader(code) is None


def _is_of_a_library(file: str) -> bool:
    """Whether it is a file of Python's own library or of an installed package; editable ones are the program's."""
    return file.startswith((_STDLIB + os.sep, "<frozen ")) or _is_installed(file)


def _is_installed(file: str) -> bool:
    return f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file
