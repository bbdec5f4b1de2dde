"""One verified call: run as compiled code for the program, run as plain Python on copies, compared, and explained where
they differ."""
from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any, TextIO

from framejit import _native
from framejit._native import Dispatcher
from framejit.config import config
from framejit.late_dataclass import dataclass
from framejit.options import Options
from framejit.verify import modes, randomness, reproduction
from framejit.verify.difference import Difference, first_difference
from framejit.verify.first_node import NodeDifference, first_differing_node
from framejit.verify.graph_runs import GraphRun, recorded
from framejit.verify.missing_guard import Hits, capture_agrees, missing_guards, recaptured
from framejit.verify.outside import Outside
from framejit.verify.report import BACKEND, CAPTURE, GUARD, Finding, Reporter
from framejit.verify.world import CannotCopy, World, duplicate, original

_plain_runs = 0
_changing = threading.Lock()


@dataclass
class _Outcome:
    result: Any
    error: BaseException | None
    world: World
    modes: dict[str, Any]


class Shadow:
    """Verifies calls of one dispatcher."""

    def __init__(self, dispatcher: Dispatcher, fn: FunctionType, options: Options) -> None:
        self.dispatcher, self.fn, self.options = dispatcher, fn, options
        code = fn.__code__
        self.reporter = Reporter(
            options.name or code.co_qualname, options.file or code.co_filename, options.line or code.co_firstlineno
        )
        self._first_call: Callable[[Path], None] | None = None

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return or raise what `dispatcher(*args, **kwargs)` does, and compare it with plain Python on copies of the
        arguments."""
        world = original(self.fn, args, kwargs)
        try:
            twin, spare = duplicate(world), duplicate(world)
        except CannotCopy as e:
            self.reporter.skipped(str(e))
            return self.dispatcher(*args, **kwargs)
        hits, outside = Hits(self.dispatcher), Outside(world)
        before = _together(randomness.now(), modes.now(), outside.now())
        with recorded() as runs:
            compiled = _run(self.dispatcher, world)
        after = _together(randomness.now(), modes.now(), outside.now())
        try:
            before()
            with plain_python():
                expected = _run(twin.fn, twin)
            try:
                difference = _difference(expected, compiled)
            except Exception as e:  # of objects that can't be looked at, which must not take the program with it
                if config.debug:
                    raise
                self.reporter.skipped(f"comparing raised {type(e).__name__}: {e}")
                return _given(compiled)
            if difference is None:
                self.reporter.same()
                self._first_call = self._first_call or reproduction.saver(spare.args, spare.kwargs)
            else:
                self._explain(difference, runs, hits, before, expected, spare)
        finally:
            after()
        return _given(compiled)

    def _explain(
        self, difference: Difference, runs: list[GraphRun], hits: Hits, before: Callable[[], None], expected: _Outcome,
        spare: World
    ) -> None:
        try:
            if not self._wrong_graph(difference, runs):
                self._wrong_capture(difference, hits, before, expected, spare)
        except Exception as e:  # looking for the cause must not take the program with it
            if config.debug:
                raise
            cause = f"looking for the cause raised {type(e).__name__}: {e}"
            self.reporter.different(
                Finding(CAPTURE, str(difference), cause), lambda title: self._write_calls(title, spare)
            )

    def _wrong_graph(self, difference: Difference, runs: list[GraphRun]) -> bool:
        for run in runs:
            differs = run.difference()
            if differs is not None:
                check_graph(self.reporter, run, differs, str(difference))
                return True
        return False

    def _wrong_capture(
        self, difference: Difference, hits: Hits, before: Callable[[], None], expected: _Outcome, spare: World
    ) -> None:
        again = self._again(spare)
        ran = hits.reused()
        before()
        result, made = recaptured(self.dispatcher, again, self.options) if expected.error is None else (None, [])
        if not made or not capture_agrees(result, again, expected.result, expected.world):
            cause = "the graphs compute what their nodes say, so the capture is at fault"
            finding = Finding(CAPTURE, str(difference), cause)
        elif not ran:
            cause = (
                "the graphs compute what their nodes say, and a capture of the copies is right, so something that was "
                "not copied is at fault"
            )
            finding = Finding(CAPTURE, str(difference), cause)
        else:
            guards = missing_guards(ran, made)
            cause = f"compiled code ran that does not fit this call; missing guard: {guards[0]}" if guards else (
                "compiled code ran that does not fit this call, though a new capture makes the same guards"
            )
            finding = Finding(GUARD, str(difference), cause, guard=guards[0] if guards else "")
        self.reporter.different(finding, lambda title: self._write_calls(title, spare))

    @staticmethod
    def _again(spare: World) -> World:
        """Another copy: `spare` stays as the call found it, for the reproduction."""
        return duplicate(spare)

    def _write_calls(self, title: str, spare: World) -> Path:
        calls = [self._first_call] if self._first_call is not None else []
        return reproduction.write_call(
            self.reporter.function, self.fn, title, [*calls, reproduction.saver(spare.args, spare.kwargs)]
        )


def check_graph(reporter: Reporter, run: GraphRun, difference: Difference | None = None, seen: str = "") -> None:
    """Report a call of a graph that differs from its nodes. `seen` is what the program would have seen of it."""
    differs = difference or run.difference()
    if differs is None:
        return
    options = run.graph.options
    try:
        found = first_differing_node(run)
    except Exception as e:  # the backend refuses a part of the graph
        found = None
        note = f" (its parts can't be compiled: {type(e).__name__}: {e})"
    else:
        note = "" if found else " (compiled anew, the same graph is right)"
    if found is None:
        cause = f"a graph compiled by {options.backend_name!r} differs from its nodes: {differs}{note}"
        whole = NodeDifference("", "", differs, run.graph.module, run.inputs)
        reporter.different(
            Finding(BACKEND, seen or str(differs), cause),
            lambda title: reproduction.write_graph(reporter.function, title, whole, options),
        )
        return
    where = f" at {found.user_line}" if found.user_line else ""
    cause = f"first node that differs when compiled by {options.backend_name!r}: {found.node}{where}"
    culprit = found
    reporter.different(
        Finding(BACKEND, seen or str(differs), cause, node=found.node),
        lambda title: reproduction.write_graph(reporter.function, title, culprit, options)
    )


def _run(call: Callable[..., Any], world: World) -> _Outcome:
    result, error = None, None
    try:
        result = call(*world.args, **world.kwargs)
    except KeyboardInterrupt:
        raise
    except BaseException as e:
        error = e
    return _Outcome(result, error, world, modes.described())


def _given(outcome: _Outcome) -> Any:
    if outcome.error is not None:
        raise outcome.error
    return outcome.result


def _difference(expected: _Outcome, got: _Outcome) -> Difference | None:
    if (expected.error is None) != (got.error is None):
        return Difference(
            "exception", *(repr(side.error) if side.error is not None else "none" for side in (expected, got))
        )
    if expected.error is not None:
        raised = first_difference({"exception": expected.error}, {"exception": got.error})
        if raised is not None:
            return raised
    sides = [{"result": side.result, **side.world.state(), **side.modes} for side in (expected, got)]
    return first_difference(*sides)


def _together(*restorers: Callable[[], None]) -> Callable[[], None]:
    def restore() -> None:
        for one in restorers:
            one()

    return restore


@contextmanager
def plain_python() -> Iterator[None]:
    """Within the block nothing is compiled or dispatched, and what this thread prints or warns of goes nowhere: the
    program said it already."""
    global _plain_runs
    out, err, show, thread = sys.stdout, sys.stderr, warnings.showwarning, threading.get_ident()

    def drop(*args: Any, **kwargs: Any) -> None:
        if threading.get_ident() != thread:
            show(*args, **kwargs)

    with _changing:
        _plain_runs += 1
        _native.set_disabled(True)
    muted = _Muted(out), _Muted(err)
    sys.stdout, sys.stderr = muted
    warnings.showwarning = drop
    try:
        yield
    finally:
        if warnings.showwarning is drop:
            warnings.showwarning = show
        if (sys.stdout, sys.stderr) == muted:
            sys.stdout, sys.stderr = out, err
        with _changing:
            _plain_runs -= 1
            _native.set_disabled(bool(_plain_runs) or config.disable)


class _Muted:
    """A stream that drops what one thread writes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
