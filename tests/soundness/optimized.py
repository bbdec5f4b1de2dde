"""CPython's own tests, every test method optimized: a command that prints where the outcome differs from plain Python.

    python tests/soundness/optimized.py test_set test_dict        # modules of CPython's `test` package
    python tests/soundness/optimized.py test_set -k union         # only tests whose name contains a word
    python tests/soundness/optimized.py --list                    # all the modules that this command runs; the test
    suite runs the quick ones

Each module runs twice in processes of its own, plain and with `framejit.optimize(method, backend="eager")` in place of
each bound test method. A test that kills its process, or does not end within the limit, is told as `crash` or `hang`,
and the rest runs in a new process.
"""
from __future__ import annotations

import argparse
import doctest
import faulthandler
import importlib.util
import io
import json
import os
import pathlib
import sys
import tempfile
import time
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import forked  # noqa: E402

LIMIT = 300.0  # seconds for one test method, on a machine that may be busy
DEFECT = "This is a defect in framejit"


@dataclass
class Outcome:
    """What became of one test method: ok, skipped, FAIL, ERROR, ..., crash or hang; and the text that goes with it."""

    result: str
    text: str = ""
    defects: list[str] = field(default_factory=list)  # framejit's own internal errors that it told of
    seconds: float = 0.0


# ---- inside a child: run the tests and write one line for each -----------------------------------------------------


def methods(suite: Any) -> Iterator[unittest.TestCase]:
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from methods(test)
        else:
            yield test


class Recorder(unittest.TestResult):
    """Keeps the worst that was told of a test; sub-tests count for their test."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = Outcome("ok")

    def _note(self, result: str, text: str) -> None:
        if self.outcome.result == "ok" or result in ("FAIL", "ERROR"):
            self.outcome.result, self.outcome.text = result, self.outcome.text or text

    def addError(self, test: Any, err: Any) -> None:
        self._note("ERROR", self._exc_info_to_string(err, test))

    def addFailure(self, test: Any, err: Any) -> None:
        self._note("FAIL", self._exc_info_to_string(err, test))

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._note(
                "FAIL" if issubclass(err[0], test.failureException) else "ERROR", self._exc_info_to_string(err, test)
            )

    def addSkip(self, test: Any, reason: str) -> None:
        self._note("skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._note("expected failure", "")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note("unexpected success", "")


def optimize_method(test: unittest.TestCase, name: str) -> None:
    """Put the optimized bound method in front of the class's; marks that unittest looks for stay where it looks."""
    import framejit

    method = getattr(test, name, None)
    if method is None or getattr(method, "__unittest_skip__", False):
        return  # a module that could not be imported, and what is never called
    if getattr(method, "__unittest_expecting_failure__", False):
        test.__unittest_expecting_failure__ = True  # type: ignore[attr-defined]
    setattr(test, name, framejit.optimize(method, backend="eager"))


def child(module: str, plain: bool, left_out: set[str], word: str, lines: Any) -> None:
    if not plain:
        import framejit
    suite = unittest.defaultTestLoader.loadTestsFromName(f"test.{module}")
    groups: dict[type, list[unittest.TestCase]] = {}
    for test in methods(suite):
        if test.id() not in left_out and word in test.id():
            groups.setdefault(type(test), []).append(test)
    for tests in groups.values():
        for test in tests:
            if not plain and not isinstance(test, doctest.DocTestCase):  # those run text that no method holds
                optimize_method(test, test._testMethodName)
            _run_one(test, lines)
            if not plain:
                framejit.reset()


def _run_one(test: unittest.TestCase, lines: Any) -> None:
    print(json.dumps({"begins": test.id()}), file=lines, flush=True)
    recorder, began = Recorder(), time.perf_counter()
    stderr, sys.stderr = sys.stderr, io.StringIO()
    told: list[str] = []

    def listen(message: Any, category: Any, *rest: Any) -> None:
        if DEFECT in str(message):
            told.append(str(message))

    shown, warnings.showwarning = warnings.showwarning, listen
    faulthandler.dump_traceback_later(LIMIT, exit=True, file=sys.__stderr__)
    try:
        # as a suite of its own, so that the fixtures of class and module are set up for it
        unittest.TestSuite([test]).run(recorder)
    finally:
        faulthandler.cancel_dump_traceback_later()
        warnings.showwarning = shown
        sys.stderr = stderr
    outcome = recorder.outcome
    record = {
        "ends": test.id(), "result": outcome.result, "text": outcome.text, "defects": told,
        "seconds": time.perf_counter() - began,
    }
    print(json.dumps(record), file=lines, flush=True)


# ---- the parent: children until every test has an outcome ----------------------------------------------------------


def outcomes(module: str, plain: bool, word: str = "") -> dict[str, Outcome]:
    """The outcome of each test method of `test.MODULE`, by the test's id."""
    found: dict[str, Outcome] = {}
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        while True:
            path, left_out = pathlib.Path(folder, "lines"), pathlib.Path(folder, "left_out")
            path.write_text("")
            left_out.write_text("\n".join(found))
            command = [
                __file__, "--child", path, "--left-out", left_out, "-k", word, module,
                *(["--plain"] if plain else []),
            ]
            run = forked.run(command, cwd=folder, env=environment, timeout=7200, errors="replace")
            running = _read(path, found)
            if running is None and not run.returncode:
                return found
            if running is None:  # it died between two tests, of what the last one left behind
                if not path.read_text():
                    raise RuntimeError(f"{module} did not start: {run.stderr[-2000:]}")
                running = list(found)[-1]
            kind = "hang" if "Timeout (" in run.stderr else "crash"
            found[running] = Outcome(kind, f"exit code {run.returncode}\n{run.stderr[-3000:]}")


def _read(path: pathlib.Path, found: dict[str, Outcome]) -> str | None:
    """Add the outcomes written down; the id of the test that was begun and has not ended, if any."""
    running = None
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if "begins" in record:
            running = record["begins"]
        else:
            running = None
            found[record["ends"]] = Outcome(record["result"], record["text"], record["defects"], record["seconds"])
    return running


def differences(module: str, word: str = "") -> tuple[int, dict[str, str]]:
    """How many tests `test.MODULE` has, and of those that end otherwise when optimized, or with an internal error, what
    happened."""
    plain, optimized = outcomes(module, True, word), outcomes(module, False, word)
    told = {}
    for name in sorted(plain.keys() | optimized.keys()):
        before, after = plain.get(name, Outcome("absent")), optimized.get(name, Outcome("absent"))
        if before.result != after.result:
            told[name] = f"{before.result} plain, {after.result} optimized\n{after.text or before.text}"
        elif after.defects:
            told[name] = "internal error: " + after.defects[0]
    return len(plain), told


def main() -> None:
    from cpython_modules import EXCUSED, MODULES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "modules",
        nargs="*",
        help="modules of CPython's test package, such as test_set; all of --list when none is named",
    )
    parser.add_argument("-k", dest="word", default="", help="only tests whose id contains this")
    parser.add_argument("-v", dest="verbose", action="store_true", help="print whole tracebacks")
    parser.add_argument("--list", action="store_true", help="print the modules this command runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--left-out", help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        left_out = set(pathlib.Path(options.left_out).read_text().splitlines())
        with open(options.child, "a") as lines:
            child(options.modules[0], options.plain, left_out, options.word, lines)
        return
    if options.list:
        print("\n".join(MODULES))
        return
    total = different = 0
    # some are newer than this Python
    for module in options.modules or [m for m in MODULES if importlib.util.find_spec(f"test.{m}")]:
        began = time.perf_counter()
        n, told = differences(module, options.word)
        unexcused = {name: text for name, text in told.items() if name not in EXCUSED}
        total, different = total + n, different + len(unexcused)
        excused = f", {len(told) - len(unexcused)} excused" if len(told) > len(unexcused) else ""
        print(
            f"{module}: {n} tests, {len(unexcused)} different{excused}, {time.perf_counter() - began:.0f} s", flush=True
        )
        for name, text in unexcused.items():
            lines_of = text.strip().splitlines()
            print(f"  {name}: {lines_of[0]}")
            print(
                "\n".join(
                    "      " + line
                    for line in (lines_of[1:] if options.verbose else lines_of[-1:] if len(lines_of) > 1 else [])
                )
            )
    print(f"{total} tests, {different} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
