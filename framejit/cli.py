"""The command line: runs an unchanged script with every function of it considered for compilation.

    framejit run script.py [args]         run it (--watch shows what the compiler does meanwhile)
    framejit run -m package.module        the same for a module
    framejit status script.py [args]      run it and show at the end what became of each function
    framejit explain script.py [args]     run it and report graphs, graph breaks, recompiles and functions left out
    framejit check script.py [args]       run it and fail where this differs from framejit.lock (--update writes it)
    framejit report report.json           print a report that `framejit explain --json` wrote
    framejit warm script.py [args]        run it once so that what is compiled is kept (--save writes it to a file)
    framejit cache info|clear             what is kept of compiled kernels between processes

The script keeps its own arguments, exit code, standard output and exceptions. What framejit has to say goes to standard
error.
"""
from __future__ import annotations

import argparse
import atexit
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import framejit
from framejit import script
from framejit.backends.registry import resolve
from framejit.config import config
from framejit.environment.saying import say
from framejit.errors import FramejitError, MissingPackage
from framejit.events.meter import meter

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

_FORMATS: dict[str, Callable[[Explanation, str], None]] = {
    "json": lambda explanation, path: explanation.save(path),
    "html": lambda explanation, path: explanation.to_html(path),
    "sarif": lambda explanation, path: explanation.to_sarif(path),
}


COMPILE_AFTER_S = 0.5
"""What `framejit run` sets `config.compile_after` to."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `framejit` command."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser(*given[:1]).parse_args(given)
    if options.command == "report":
        show_report(options)
        return
    if options.command == "cache":
        from framejit.backends.fuse.cache.cache_command import run_cache_command  # each command imports its own

        run_cache_command(options)
        return
    if options.backend:
        try:
            resolve(options.backend)
        except FramejitError as e:
            sys.exit(f"framejit: {e}")
        config.default_backend = options.backend
    if options.command == "check":
        from framejit.lock.check_command import check

        sys.exit(check(options))
    if options.command == "explain":
        explain_at_exit(files_wanted(options), options.rewrites == "all", options.full)
    elif options.command == "status":
        meter.start()
    elif options.command == "run":
        if options.compile_after is not None:
            config.compile_after = options.compile_after
        elif "FRAMEJIT_COMPILE_AFTER" not in os.environ:
            config.compile_after = COMPILE_AFTER_S
        config.background |= options.background
    config.min_graph_size = options.min_graph_size
    config.freeze |= options.freeze
    try:
        at_end = show_status if options.command == "status" else None
        if options.command == "warm":
            from framejit.warm import telling

            at_end = telling(options)
        elif options.command == "run" and options.watch:
            at_end = watch(options.target)
        script.run(options.target, options.arguments, as_module=options.module, policy=policy(options), at_end=at_end)
    except script.CannotRun as e:
        sys.exit(f"framejit: cannot run {options.target!r}: {e}")


def parser(wanted: str = "") -> argparse.ArgumentParser:
    """The parser of framejit's command line. Everything after the script belongs to the script. For `run` it knows only
    that: scripts wait for what it takes to import the others."""
    made = argparse.ArgumentParser(
        prog="framejit", description="Run a PyTorch program with its functions compiled, and see what was done."
    )
    made.add_argument("--version", action="version", version=framejit.__version__)
    commands = made.add_subparsers(dest="command", required=True)
    run = "run", "run a script"
    for name, meaning in (run,) if wanted == "run" else (
        run,
        ("status", "run a script and show what became of each function"),
        ("explain", "run a script and report graphs, graph breaks, recompiles and functions left out"),
        ("warm", "run a script once, so that captures, plans and kernels are kept for the processes after it"),
    ):
        command = commands.add_parser(name, help=meaning, description=meaning)
        command.add_argument(
            "-m", dest="module", action="store_true", help="the target is a module, as for `python -m`"
        )
        command.add_argument("--backend", help=f"what compiles the graphs (default: {config.default_backend})")
        frames = command.add_mutually_exclusive_group()
        frames.add_argument(
            "--every-frame",
            action="store_true",
            help="consider the frames of libraries too, not only those worth compiling",
        )
        frames.add_argument(
            "--only", metavar="MODULE.FUNCTION", help="consider this function alone; * stands for anything"
        )
        command.add_argument(
            "--min-graph-size", metavar="N", type=_number, default=0,
            help="leave graphs of fewer operations to torch's own kernels",
        )
        command.add_argument("--freeze", action="store_true", help=(
            "for inference: compute once what depends on weights alone (see optimize(freeze=True))"
        ))
        if name == "warm":
            from framejit.warm import add_options

            add_options(command)
        if name == "run":
            command.add_argument(
                "--compile-after", metavar="SECONDS", type=float, help=(
                    "compile a function at the first call that comes so long after its first one (default: "
                    f"config.compile_after where FRAMEJIT_COMPILE_AFTER sets it, else {COMPILE_AFTER_S})"
                )
            )
            command.add_argument("--watch", action="store_true", help=(
                "show on the terminal what the compiler does while the script runs (needs rich)"
            ))
            command.add_argument("--background", action="store_true", help=(
                "compile beside the script, whose calls run as plain Python meanwhile (see optimize(background=True))"
            ))
        if name == "explain":
            wanted = (
                "of the script's own code, for a quarter of its run time (quick), or of libraries too, however long it "
                "takes (all)"
            )
            command.add_argument(
                "--rewrites", choices=("quick", "all"), default="quick", help=f"look for rewrites {wanted}"
            )
            command.add_argument("--full", action="store_true", help="print the whole report, not its first screen")
            for form in _FORMATS:
                command.add_argument(
                    f"--{form}", metavar="FILE", help=f"also write the report to FILE as {form.upper()}"
                )
        command.add_argument("target", metavar="script.py", help="the script, or with -m the module")
        command.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    if wanted == "run":
        return made
    from framejit.backends.fuse.cache.cache_command import add_cache_command
    from framejit.lock.check_command import add_parser

    add_parser(commands)
    meaning = "print a report that `framejit explain --json` wrote"
    report = commands.add_parser("report", help=meaning, description=meaning)
    for form in ("html", "sarif"):
        report.add_argument(f"--{form}", metavar="FILE", help=f"write it to FILE as {form.upper()} instead")
    report.add_argument("file", metavar="report.json")
    add_cache_command(commands)
    return made


def _number(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of operations")
    return int(text)


def watch(target: str) -> Callable[[], None] | None:
    """Show what the compiler does from now on, if there is a terminal to show it on. Gives what is to be called when
    the script is done."""
    from framejit.watch.program import Watched, check_installed  # for those who watch
    from framejit.watch.terminal import NoView, find_terminal

    try:
        terminal = find_terminal()
        check_installed()
    except NoView as e:
        say(f"--watch shows nothing: {e}")
        return None
    except MissingPackage as e:
        sys.exit(f"framejit: {e}")
    return Watched(terminal, target).tell_last


def show_status() -> None:
    say(str(framejit.status()))


def policy(options: argparse.Namespace) -> script.Policy | None:
    """Which frames the options ask for; None for those worth compiling."""
    if options.every_frame:
        return script.every_frame
    if options.only is None:
        return None
    only = script.Only(options.only, options.target)
    atexit.register(
        lambda: (
            None
            if only.matched
            else say(f"no function called {only.pattern!r} ran; the names have the form module.function")
        )
    )
    return only


def files_wanted(options: argparse.Namespace) -> dict[str, str]:
    """The files to write, by format, as absolute paths: the script may change its folder. What can't be written is
    refused before it runs."""
    files = {form: os.path.abspath(path) for form in _FORMATS if (path := getattr(options, form, None))}
    for path in files.values():
        if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
            sys.exit(
                f"framejit: cannot write {path!r}: "
                f"{'it is a folder' if os.path.isdir(path) else 'there is no such folder'}"
            )
    return files


def explain_at_exit(files: dict[str, str], all_rewrites: bool, full: bool) -> None:
    from framejit.findings.at_exit import ReportAtExit
    from framejit.findings.screen import screen

    def write(explanation: Explanation) -> None:
        say(str(explanation) if full else screen(explanation))
        write_files(explanation, files)

    if "html" in files:
        import framejit.report.html  # noqa: F401  now, as all that runs at exit

    ReportAtExit(write, all_rewrites)


def write_files(explanation: Explanation, files: dict[str, str]) -> None:
    for form, path in files.items():
        _FORMATS[form](explanation, path)


def show_report(options: argparse.Namespace) -> None:
    """Print a report, or write it in another form."""
    from framejit.findings.saved_report import NotAReport, read_report

    try:
        explanation = read_report(options.file)
    except (OSError, NotAReport) as e:
        sys.exit(f"framejit: cannot read {options.file!r}: {e.strerror if isinstance(e, OSError) else e}")
    files = files_wanted(options)
    write_files(explanation, files)
    if not files:
        try:
            print(explanation, flush=True)
        except BrokenPipeError:  # as of `| head`; Python would complain once more when it closes standard output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
