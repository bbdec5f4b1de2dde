"""The command line: runs an unchanged script with every function of it considered for compilation.

    framejit run script.py [args]         run it
    framejit run -m package.module        the same for a module
    framejit status script.py [args]      run it and show at the end what became of each function
    framejit explain script.py [args]     run it and report graphs, graph breaks and functions left out

The script keeps its own arguments, exit code, standard output and exceptions. What framejit has to say goes to standard error.
"""
from __future__ import annotations

import argparse
import atexit
import importlib.machinery
import io
import os
import runpy
import sys
from types import CodeType, ModuleType, TracebackType
from typing import Any

import framejit
from framejit import _native
from framejit.backends.registry import resolve
from framejit.config import config
from framejit.dispatchers import compiler, on_miss
from framejit.errors import FramejitError
from framejit.events import subscribe
from framejit.explanation import Explanation

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `framejit` command."""
    options = parser().parse_args(arguments)
    if options.backend:
        try:
            resolve(options.backend)
        except FramejitError as e:
            sys.exit(f"framejit: {e}")
        config.default_backend = options.backend
    if options.command == "explain":
        explain_at_exit(options.json)
    elif options.command == "status":
        atexit.register(lambda: say(str(framejit.status())))
    run(options.target, options.arguments, as_module=options.module, every_frame=options.every_frame)


def parser() -> argparse.ArgumentParser:
    """What the command line takes. Everything after the script belongs to the script."""
    made = argparse.ArgumentParser(prog="framejit", description="Run a PyTorch program with its functions compiled, and see what was done.")
    made.add_argument("--version", action="version", version=framejit.__version__)
    commands = made.add_subparsers(dest="command", required=True)
    for name, meaning in (
        ("run", "run a script"),
        ("status", "run a script and show what became of each function"),
        ("explain", "run a script and report graphs, graph breaks and functions left out"),
    ):
        command = commands.add_parser(name, help=meaning, description=meaning)
        command.add_argument("-m", dest="module", action="store_true", help="the target is a module, as for `python -m`")
        command.add_argument("--backend", help=f"what compiles the graphs (default: {config.default_backend})")
        command.add_argument("--every-frame", action="store_true", help="consider the frames of libraries too, not only those worth compiling")
        if name == "explain":
            command.add_argument("--json", metavar="FILE", help="also write the report to FILE as JSON")
        command.add_argument("target", metavar="script.py", help="the script, or with -m the module")
        command.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    return made


def explain_at_exit(json_file: str | None) -> None:
    explanation = Explanation()
    subscribe(explanation.hear)

    def report() -> None:
        say(str(explanation))
        if json_file:
            with open(json_file, "w") as f:
                f.write(explanation.to_json())

    atexit.register(report)


def say(text: str) -> None:
    sys.stderr.write("".join(f"[framejit] {line}".rstrip() + "\n" for line in text.splitlines()))


def run(target: str, arguments: list[str], *, as_module: bool = False, every_frame: bool = False) -> None:
    """Run a script or module as `__main__`, intercepted. What it raises is raised, and shown without framejit's own frames."""
    try:
        module, code = (load_module if as_module else load_script)(target)
        sys.argv = [str(module.__file__) if as_module else target, *arguments]
        sys.modules["__main__"] = module
        if not config.disable:
            compiler()
            if every_frame:
                _native.install_hook_policy(lambda code, namespace: not str(namespace.get("__name__")).startswith("framejit."), on_miss)
            atexit.register(_native.intercept_all, False)  # not earlier: the script's threads and exit handlers are part of it
            _native.intercept_all(True)
        exec(code, module.__dict__)
    except CannotRun as e:
        sys.exit(f"framejit: cannot run {target!r}: {e}")
    except BaseException:
        hide_own_frames()
        raise


class CannotRun(Exception):
    """There is no such script or module."""


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
    return main_module(__file__=absolute, __loader__=loader, __cached__=None), compile(source, absolute, "exec", dont_inherit=True)


def load_module(name: str) -> tuple[ModuleType, CodeType]:
    """A module and its code, as `python -m name` would see them."""
    sys.path[0] = os.getcwd()
    _, spec, code = runpy._get_module_details(name, CannotRun)  # type: ignore[attr-defined]  # what pdb and trace use as well
    return main_module(__file__=code.co_filename, __loader__=spec.loader, __cached__=spec.cached, __package__=spec.parent, __spec__=spec), code


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
