"""The report as JSON: one versioned schema, which docs/explain_schema.md describes."""
from __future__ import annotations

import json
import platform
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from framejit.events.timeline import to_dicts
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

SCHEMA = "framejit.explain/1"


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
        "cost": {
            "listening_s": explanation.listening_s,
            "compiling_s": explanation.compiling_s,
            "rewrites_s": explanation.rewrites_s,
        },
        "findings": [asdict(finding) for finding in findings],
        "recompiles": [recompile.to_dict() for recompile in explanation.recompiles],
        "graphs": [{"id": g.graph_id, "function": g.function, "operations": g.n_ops, "code": g.code} for g in graphs],
        "training": [graph.to_dict() for graph in explanation.training],
        "unfused": [*explanation.unfused],
        "frames": [asdict(frame) for frame in frames],
        "timeline": to_dicts(explanation.timeline),
        "error": f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error,
    }


def to_json(explanation: Explanation) -> str:
    return json.dumps(to_dict(explanation), indent=2)
