"""The report as JSON: one versioned schema, which docs/explain_schema.md describes."""
from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from framejit.errors import FramejitError
from framejit.events.timeline import Span, to_dicts
from framejit.findings.finding import Finding
from framejit.findings.recompiles import Recompile
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

SCHEMA = "framejit.explain/1"


class NotAReport(FramejitError, ValueError):
    """A file is no report that this version can read."""


def to_dict(explanation: Explanation) -> dict[str, Any]:

    findings, graphs, frames = explanation.findings, explanation.graphs, explanation.frames
    error = explanation.error
    return {
        "schema": SCHEMA,
        "versions": {"framejit": __version__, "torch": str(torch.__version__), "python": platform.python_version()},
        "summary": {
            "graphs": len(graphs),
            "operations": sum(graph.n_ops for graph in graphs),
            "graph_breaks": sum(finding.captures for finding in findings),
            "frames": len(frames),
            "recompiles": sum(recompile.count for recompile in explanation.recompiles),
        },
        "cost": {"listening_s": explanation.listening_s, "compiling_s": explanation.compiling_s, "rewrites_s": explanation.rewrites_s},
        "findings": [asdict(finding) for finding in findings],
        "recompiles": [recompile.to_dict() for recompile in explanation.recompiles],
        "graphs": [{"id": g.graph_id, "function": g.function, "operations": g.n_ops, "code": g.code} for g in graphs],
        "frames": [asdict(frame) for frame in frames],
        "timeline": to_dicts(explanation.timeline),
        "error": f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error,
    }


def to_json(explanation: Explanation) -> str:
    return json.dumps(to_dict(explanation), indent=2)


def read_report(path: str | os.PathLike[str]) -> Explanation:
    """The explanation that was written to a file as JSON. Raises OSError, or NotAReport."""
    with open(path, encoding="utf-8") as f:
        text = f.read()
    try:
        data = json.loads(text)
    except ValueError as e:
        raise NotAReport(f"it is not JSON: {e}") from None
    found = data.get("schema") if isinstance(data, dict) else None
    if found != SCHEMA:
        raise NotAReport(f"its schema is {found!r}, not {SCHEMA!r}" if found else "it is no report of `framejit explain --json`")
    try:
        return from_dict(data)
    except (KeyError, TypeError, AttributeError) as e:
        raise NotAReport(f"a part of it is missing or of another form ({type(e).__name__}: {e})") from None


def from_dict(data: dict[str, Any]) -> Explanation:
    from framejit.findings.explanation import Explanation, Frame, Graph

    explanation = Explanation()
    for item in data["findings"]:
        finding = Finding.from_dict(item)
        explanation._found[finding.key] = finding
    explanation._recompiles.restore([Recompile.from_dict(item) for item in data["recompiles"]])
    explanation.graphs = [Graph(g["id"], g["function"], g["operations"], g["code"]) for g in data["graphs"]]
    explanation.frames = [Frame(**frame) for frame in data["frames"]]
    explanation.error = data["error"]
    explanation._restored_timeline = [Span.from_dict(item) for item in data.get("timeline", ())]  # reports of earlier versions have none, and no cost
    if "cost" in data:
        explanation.listening_s, explanation.rewrites_s = data["cost"]["listening_s"], data["cost"]["rewrites_s"]
    return explanation
