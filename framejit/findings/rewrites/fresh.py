"""Rewrites tried in a process that is no copy of this one: CUDA does not survive a fork.

    python -m framejit.findings.rewrites.fresh REQUEST PIPE

`REQUEST` is a file with the proposals and the calls to try them on, as plain data (carried.py); a verdict for each goes
to the file descriptor `PIPE`.
"""
from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from types import FunctionType
from typing import Any

from framejit.events.place import Place
from framejit.findings.evidence import Call, Evidence
from framejit.findings.finding import Finding
from framejit.findings.rewrites.carried import CannotCarry, call_of, carried, code_of, from_bytes, to_bytes
from framejit.findings.rewrites.checking import Process
from framejit.findings.rewrites.proposal import Proposal
from framejit.findings.rewrites.site import Site
from framejit.findings.rewrites.trial import answer


def refusal(proposal: Proposal) -> str:
    """Why the call of a proposal can't be made in a fresh process; empty if it can."""
    assert proposal.evidence is not None
    try:
        carried(proposal.evidence.call)
    except CannotCarry as e:
        return f"CUDA is in use, so that it takes a fresh process, and {e}"
    return ""


def fresh(proposals: list[Proposal]) -> Process:
    """A new process that tries proposals, none of which has a refusal."""
    file, path = tempfile.mkstemp(prefix="framejit-", suffix=".pt")
    with open(file, "wb") as f:
        f.write(to_bytes(_request(proposals)))
    reading, writing = os.pipe()
    command = [sys.executable, "-P", "-m", __name__, path, str(writing)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    nothing = subprocess.DEVNULL
    child = subprocess.Popen(
        command, pass_fds=[writing], env=environment, stdin=nothing, stdout=nothing, stderr=nothing
    )
    os.close(writing)

    def end() -> None:
        child.kill()
        child.wait()
        os.unlink(path)

    return Process(reading, end)


def _request(proposals: list[Proposal]) -> dict[str, Any]:
    calls = {id(p.evidence.call): p.evidence.call for p in proposals if p.evidence is not None}
    findings = {id(p.finding): p.finding for p in proposals}
    return {
        "calls": {key: carried(call) for key, call in calls.items()},
        "findings": {
            key: {**asdict(finding), "callers": [list(caller) for caller in finding.callers]}
            for key, finding in findings.items()
        },
        "trials": [_trial(proposal) for proposal in proposals],
    }


def _trial(proposal: Proposal) -> dict[str, Any]:
    evidence = proposal.evidence
    assert evidence is not None
    code = evidence.code
    return {
        **{"finding": id(proposal.finding), "call": id(evidence.call), "place": asdict(evidence.place)},
        **{"text": proposal.site.text, "changed": proposal.changed},
        "code": (code.co_filename, code.co_qualname, code.co_firstlineno),
    }


# ---- in the fresh process -----------------------------------------------------------------------------------


def main(path: str, pipe: int) -> None:
    with open(path, "rb") as f:
        request = from_bytes(f.read())
    calls: dict[int, Call | None] = {}
    findings = {key: Finding.from_dict(data) for key, data in request["findings"].items()}
    for key, data in request["calls"].items():
        try:
            calls[key] = call_of(data)
        except Exception:
            # a module that can't be imported twice, a class that asks for more than there is: its proposals stay
            # untried
            calls[key] = None
    proposals = []
    for trial in request["trials"]:
        call, place = calls[trial["call"]], Place(**trial["place"])
        functions = (function for function in gc.get_objects() if type(function) is FunctionType)
        file, name, line = trial["code"]
        code = code_of(file, name, line, functions) if call is not None else None
        evidence = Evidence(call, place, code) if call is not None and code is not None else None
        proposals.append(Proposal(findings[trial["finding"]], evidence, Site(place, trial["text"]), trial["changed"]))
    answer(proposals, pipe)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
