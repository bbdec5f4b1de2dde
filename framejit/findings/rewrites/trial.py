"""Tries rewrites, on the arguments of the call that met the break: once as the program is and once as it would be.

Runs in a process of its own, since the calls it makes are none of the program's.
"""
from __future__ import annotations

import ast
import gc
import inspect
import json
import linecache
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
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
from framejit.findings.finding import NextBreak
from framejit.findings.rewrites.proposal import Proposal, Verdict
from framejit.findings.rewrites.site import Site
from framejit.late_dataclass import dataclass
from framejit.verify.difference import first_difference

BACKEND = "eager"
"""Whether a break is gone shows in capture; kernels would take longer and prove nothing about the source."""

NOT_MET = "the break is not met when the call is made again"
NOT_SET_UP = "the call could not be set up in a fresh process"


def answer(proposals: list[Proposal], pipe: int) -> None:
    """Try all proposals in turn, those for a finding until one works, and write each verdict to the pipe as a line of
    JSON."""
    torch.set_num_threads(1)  # the threads of a parent that forked are not here
    _native.intercept_all(False)
    config.default_backend = BACKEND
    trials = _Trials()
    left = list(proposals)
    while left:
        proposal = left.pop(0)
        verdict = trials.run(proposal)
        os.write(pipe, json.dumps(asdict(verdict)).encode() + b"\n")
        if verdict.works:
            left = [other for other in left if other.finding is not proposal.finding]


class _Trials:
    """Tries proposals. What the unchanged program does with a call is found out once."""

    def __init__(self) -> None:
        self._outcomes: dict[int, dict[str, Any] | None] = {}  # by the id of a call, which lives longer than this
        self._runs: dict[int, int] = {}
        self._changes: dict[tuple[int, str], _Captured] = {}

    def run(self, proposal: Proposal) -> Verdict:
        finding, evidence, site = proposal.finding, proposal.evidence, proposal.site
        if evidence is None:
            return Verdict(False, untried=NOT_SET_UP)
        new = _code_like(evidence.code, site, proposal.changed)
        if new is None:
            return Verdict(False)
        expected = self._outcome(evidence)
        if expected is None or not self._breaks(evidence):
            return Verdict(False, untried=NOT_MET)
        after = self._changed(evidence, site, proposal.changed, new)
        gone = not any(
            (place.code, place.source) == (finding.code, finding.excerpt.partition("\n")[0].strip())
            for place in after.breaks
        )
        same = after.outcome is not None and first_difference(expected, after.outcome) is None
        works = same and gone and after.runs < self._breaks(evidence)
        return Verdict(works, after.breaks[0] if after.breaks else None)

    def _outcome(self, evidence: Evidence) -> dict[str, Any] | None:
        """What the unchanged program does with the call, in plain Python."""
        key = id(evidence.call)
        if key not in self._outcomes:
            config.disable = True
            self._outcomes[key] = _call(evidence)
            config.disable = False
        return self._outcomes[key]

    def _changed(self, evidence: Evidence, site: Site, changed: str, new: CodeType) -> _Captured:
        """The call with the source changed. Findings at one line may have one and the same rewrite."""
        key = id(evidence.call), changed
        if key not in self._changes:
            with _applied(evidence, site, changed, new):
                self._changes[key] = _captured(evidence)
        return self._changes[key]

    def _breaks(self, evidence: Evidence) -> int:
        """How often graphs break in the call as the program is."""
        key = id(evidence.call)
        if key not in self._runs:
            self._runs[key] = _captured(evidence).runs
        return self._runs[key]


def _call(evidence: Evidence, wrapper: Callable[[Any], Any] = lambda fn: fn) -> dict[str, Any] | None:
    """What the call returns or raises, and its arguments as it leaves them; None if they can't be copied."""
    assert evidence.args is not None
    args = copied(evidence.args, share_modules=False)
    if args is None:
        return None
    torch.manual_seed(0)
    fn: Callable[..., Any] = evidence.fn
    positional, keywords = _bound(evidence.fn.__code__, args)
    try:
        return {"result": wrapper(fn)(*positional, **keywords), "raised": None, "arguments": args}
    except Exception as e:
        return {"result": None, "raised": (type(e), str(e)), "arguments": args}


def _bound(code: CodeType, slots: tuple[Any, ...]) -> tuple[list[Any], dict[str, Any]]:
    """Argument slots as the arguments of a call."""
    n, n_named = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    positional, keywords, rest = (
        list(slots[:n]), dict(zip(code.co_varnames[n:n_named], slots[n:n_named])), list(slots[n_named:]),
    )
    if code.co_flags & inspect.CO_VARARGS:
        positional += rest.pop(0)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        keywords |= rest.pop(0)
    return positional, keywords


@dataclass
class _Captured:
    """A call that was captured: its outcome, the places where its graphs broke, and how often they did."""

    outcome: dict[str, Any] | None
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
        outcome = _call(evidence, lambda fn: optimize(fn, backend=BACKEND))
    finally:
        unsubscribe()
    return _Captured(outcome, found, sum(cost.count for cost in meter.breaks.values()))


# ---- the change -----------------------------------------------------------------------------------------


@contextmanager
def _applied(evidence: Evidence, site: Site, changed: str, new: CodeType) -> Iterator[None]:
    """The program with its source changed, for a while."""
    old = evidence.code
    functions = [f for f in gc.get_referrers(old) if isinstance(f, FunctionType) and f.__code__ is old]
    for function in functions:
        function.__code__ = new
    lines = linecache.cache.get(site.file)
    linecache.cache[site.file] = (len(changed), None, changed.splitlines(True), site.file)
    namespaces = list({id(f.__globals__): f.__globals__ for f in functions}.values())
    before = [dict(namespace) for namespace in namespaces]
    try:
        for namespace in namespaces:
            exec(_new_names(site, changed), namespace)
        yield
    finally:
        for function in functions:
            function.__code__ = old
        if lines is not None:
            linecache.cache[site.file] = lines
        for namespace, names in zip(namespaces, before):
            namespace.clear()
            namespace.update(names)


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


def _new_names(site: Site, changed: str) -> CodeType:
    """What gives the functions and imports that a rewrite adds at the top of the file."""
    old = {ast.dump(node) for node in site.tree.body}
    new = [
        node
        for node in ast.parse(changed).body
        if ast.dump(node) not in old and isinstance(node, (ast.Import, ast.FunctionDef))
    ]
    known = {node.name for node in site.tree.body if isinstance(node, ast.FunctionDef)}
    added: list[ast.stmt] = [node for node in new if not (isinstance(node, ast.FunctionDef) and node.name in known)]
    return compile(ast.Module(added, []), site.file, "exec")
