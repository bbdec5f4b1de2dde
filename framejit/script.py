"""Runs an unchanged script or module as `__main__`, with its frames intercepted."""
from __future__ import annotations

import atexit
import fnmatch
import importlib.machinery
import io
import os
import runpy
import sys
from collections.abc import Callable
from types import CodeType, ModuleType, TracebackType
from typing import Any

from framejit import _native
from framejit.config import config
from framejit.dispatchers import on_miss, watch_frames
from framejit.environment.torch_compile import call_without_dynamo
from framejit.late_dataclass import write_all

Policy = Callable[[CodeType, dict[str, Any]], bool]
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CannotRun(Exception):
    """There is no such script or module."""


def run(
    target: str, arguments: list[str], *, as_module: bool = False, policy: Policy | None = None,
    at_end: Callable[[], Any] | None = None,
) -> None:
    """Run a script or module as `__main__`. What it raises is raised, and shown without framejit's own frames.

    `policy` says which frames are considered, in place of those that are worth it. `at_end` is called when the program
    and its exit handlers are done, and what was compiled for it is not dropped yet.
    """
    try:
        module, code = (load_module if as_module else load_script)(target)
        sys.argv = [str(module.__file__) if as_module else target, *arguments]
        sys.modules["__main__"] = module
        if not config.disable:
            call_without_dynamo()
            watch_frames()
            if policy is not None:
                _native.install_hook_policy(policy, on_miss)
            # not earlier: the script's threads and exit handlers are part of it
            atexit.register(_native.intercept_all, False)
            _native.intercept_all(True)
        if at_end is not None:
            write_all()
            atexit.register(at_end)
        exec(code, module.__dict__)
    except CannotRun:
        raise
    except BaseException:
        hide_own_frames()
        raise


# ---- which frames ---------------------------------------------------------------------------------------


def every_frame(code: CodeType, namespace: dict[str, Any]) -> bool:
    """Frames of libraries too."""
    return not str(namespace.get("__name__")).startswith("framejit.")


class Only:
    """The functions a person names: `module.function`, where the script is `__main__` or its own name, and `*` stands
    for anything."""

    def __init__(self, pattern: str, script: str) -> None:
        self.pattern, self.matched = pattern, False
        self._script = os.path.splitext(os.path.basename(script))[0]

    def __call__(self, code: CodeType, namespace: dict[str, Any]) -> bool:
        module = str(namespace.get("__name__"))
        if code.co_name == "<module>" or not every_frame(code, namespace):
            return False
        names = [
            f"{module}.{code.co_qualname}",
            *([f"{self._script}.{code.co_qualname}"] if module == "__main__" else []),
        ]
        chosen = any(fnmatch.fnmatchcase(name, self.pattern) for name in names)
        self.matched |= chosen
        return chosen


# ---- loading --------------------------------------------------------------------------------------------


def load_script(path: str) -> tuple[ModuleType, CodeType]:
    """A script and its code, as `python path` would see them."""
    absolute = os.path.abspath(path)
    try:
        with io.open_code(absolute) as f:
            source = f.read()
    except OSError as e:
        raise CannotRun(e.strerror) from e
    sys.path[0] = os.path.dirname(os.path.realpath(path))
    loader = importlib.machinery.SourceFileLoader("__main__", absolute)
    return main_module(__file__=absolute, __loader__=loader, __cached__=None), compile(
        source, absolute, "exec", dont_inherit=True
    )


def load_module(name: str) -> tuple[ModuleType, CodeType]:
    """A module and its code, as `python -m name` would see them."""
    sys.path[0] = os.getcwd()
    _, spec, code = runpy._get_module_details(name, CannotRun)  # type: ignore[attr-defined]  # what pdb and trace use as well
    return main_module(
        __file__=code.co_filename, __loader__=spec.loader, __cached__=spec.cached, __package__=spec.parent,
        __spec__=spec,
    ), code


def main_module(**names: Any) -> ModuleType:
    module = ModuleType("__main__")
    module.__dict__.update(names, __builtins__=__builtins__)
    return module


def hide_own_frames() -> None:
    """From now on an uncaught exception is shown as if the script had been run by Python itself."""
    show = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_code is not run.__code__:
            trace = trace.tb_next
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            trace = trace.tb_next
        show(kind, error.with_traceback(trace), trace)

    sys.excepthook = excepthook
