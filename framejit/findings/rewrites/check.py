"""Tries a rewrite: in a child process, on the arguments of the call that met the break, once as the program is and once as it would be."""
from __future__ import annotations

import ast
import gc
import inspect
import linecache
import os
import pickle
import select
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from framejit import _native
from framejit.api import optimize
from framejit.config import config
from framejit.dispatchers import drop_entries
from framejit.events import Event, subscribe
from framejit.events.meter import meter
from framejit.findings.evidence import Evidence, copied
from framejit.findings.finding import Finding, NextBreak
from framejit.findings.rewrites.alike import alike
from framejit.findings.rewrites.fork import fork
from framejit.findings.rewrites.site import Site

_exit = os._exit  # the command line puts its own in place of it


@dataclass
class Verdict:
    """What trying a rewrite showed."""

    works: bool
    """It removes the break, and the results are the same."""
    next_break: NextBreak | None = None


def can_check(evidence: Evidence | None) -> bool:
    """Whether the call can be made again without the program noticing."""
    return evidence is not None and evidence.args is not None and hasattr(os, "fork") and not torch.cuda.is_initialized()


def check(finding: Finding, evidence: Evidence, site: Site, changed: str, seconds: float) -> Verdict:
    """Try the rewrite. What goes wrong in the child, and what takes too long, does not work."""
    reading, writing = os.pipe()
    child = fork()
    if child == 0:
        os.close(reading)
        try:
            _silence()
            verdict = _try(finding, evidence, site, changed)
            os.write(writing, pickle.dumps(verdict))
        finally:
            _exit(0)
    os.close(writing)
    try:
        answer = _read(reading, seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return pickle.loads(answer) if answer else Verdict(False)


def _read(pipe: int, seconds: float) -> bytes:
    ready, _, _ = select.select([pipe], [], [], max(seconds, 0.0))
    return os.read(pipe, 2**16) if ready else b""  # a verdict is written at once, and shorter than a pipe is long


def _silence() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


# ---- in the child -------------------------------------------------------------------------------------


def _try(finding: Finding, evidence: Evidence, site: Site, changed: str) -> Verdict:
    torch.set_num_threads(1)  # the threads of the parent are not here
    _native.intercept_all(False)
    config.disable = True
    expected = _call(evidence)
    config.disable = False
    before = _captured(evidence).runs
    new = _code_like(evidence.code, site, changed)
    if expected is None or new is None:
        return Verdict(False)
    for function in [f for f in gc.get_referrers(evidence.code) if isinstance(f, FunctionType) and f.__code__ is evidence.code]:
        function.__code__ = new
    if evidence.code is evidence.fn.__code__:
        evidence.fn.__code__ = new
    linecache.cache[site.file] = (len(changed), None, changed.splitlines(True), site.file)
    _add_new_names(evidence.fn, site, changed)
    after = _captured(evidence)
    gone = not any((place.code, place.source) == (finding.code, finding.excerpt.partition("\n")[0].strip()) for place in after.breaks)
    works = after.outcome is not None and alike(expected, after.outcome) and gone and after.runs < before
    return Verdict(works, after.breaks[0] if after.breaks else None)


def _call(evidence: Evidence, wrapper: Callable[[Any], Any] = lambda fn: fn) -> tuple[Any, ...] | None:
    """What the call returns or raises, and its arguments as it leaves them."""
    assert evidence.args is not None
    args = copied(evidence.args, share_modules=False)
    if args is None:
        return None
    torch.manual_seed(0)
    positional, keywords = _bound(evidence.fn, args)
    try:
        return wrapper(evidence.fn)(*positional, **keywords), args
    except Exception as e:
        return type(e), str(e), args


def _bound(fn: FunctionType, slots: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Argument slots as the arguments of a call."""
    code = fn.__code__
    n, n_named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    positional, keywords, rest = list(slots[:n]), dict(zip(code.co_varnames[n:n_named], slots[n:n_named])), list(slots[n_named:])
    if code.co_flags & inspect.CO_VARARGS:
        positional += rest.pop(0)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords |= rest.pop(0)
    return positional, keywords


@dataclass
class _Captured:
    """A call that was captured: its outcome, the places where its graphs broke, and how often they did."""

    outcome: tuple[Any, ...] | None
    breaks: list[NextBreak]
    runs: int


def _captured(evidence: Evidence) -> _Captured:
    found: list[NextBreak] = []

    def hear(event: Event) -> None:
        if event.kind == "graph_break":
            line = event.line or 0
            found.append(NextBreak(event.code, line, linecache.getline(event.file, line).strip(), event.reason))

    drop_entries()
    meter.running = 0  # the program being explained may not be done
    meter.start()
    unsubscribe = subscribe(hear)
    try:
        outcome = _call(evidence, optimize)
    finally:
        unsubscribe()
    return _Captured(outcome, found, sum(cost.count for cost in meter.breaks.values()))


def _code_like(code: CodeType, site: Site, changed: str) -> CodeType | None:
    """The code of the same function in the changed file; None if the file on disk is not what runs."""
    before, after = (_codes(compile(text, site.file, "exec", dont_inherit=True)) for text in (site.text, changed))
    old, new = ([c for c in codes if c.co_qualname == code.co_qualname] for codes in (before, after))
    same = [i for i, c in enumerate(old) if c.co_code == code.co_code and c.co_firstlineno == code.co_firstlineno]
    if len(same) != 1 or len(old) != len(new) or new[same[0]].co_freevars != code.co_freevars:
        return None
    return new[same[0]]


def _codes(code: CodeType) -> list[CodeType]:
    def walk(code: CodeType) -> Iterator[CodeType]:
        yield code
        for const in code.co_consts:
            if isinstance(const, CodeType):
                yield from walk(const)

    return list(walk(code))


def _add_new_names(fn: FunctionType, site: Site, changed: str) -> None:
    """Have the functions and imports that a rewrite adds at the top of the file."""
    old = {ast.dump(node) for node in site.tree.body}
    new = [node for node in ast.parse(changed).body if ast.dump(node) not in old and isinstance(node, (ast.Import, ast.FunctionDef))]
    known = {node.name for node in site.tree.body if isinstance(node, ast.FunctionDef)}
    added: list[ast.stmt] = [node for node in new if not (isinstance(node, ast.FunctionDef) and node.name in known)]
    exec(compile(ast.Module(added, []), site.file, "exec"), fn.__globals__)
