"""Reports that were written as JSON, read again."""

from __future__ import annotations

import json
import os
from typing import Any

from framejit.errors import FramejitError
from framejit.events.timeline import Span
from framejit.events.training import Training
from framejit.findings.explanation import Explanation, Frame, Graph
from framejit.findings.finding import Finding
from framejit.findings.recompiles import Recompile
from framejit.findings.schema import SCHEMA


class NotAReport(FramejitError, ValueError):
    """A file is no report that this version can read."""


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
        raise NotAReport(
            f"its schema is {found!r}, not {SCHEMA!r}" if found else "it is no report of `framejit explain --json`"
        )
    try:
        return from_dict(data)
    except (KeyError, TypeError, AttributeError) as e:
        raise NotAReport(f"a part of it is missing or of another form ({type(e).__name__}: {e})") from None


def from_dict(data: dict[str, Any]) -> Explanation:
    explanation = Explanation()
    for item in data["findings"]:
        finding = Finding.from_dict(item)
        explanation._found.by_key[finding.key] = finding
    explanation._recompiles.restore([Recompile.from_dict(item) for item in data["recompiles"]])
    explanation.graphs = [Graph(g["id"], g["function"], g["operations"], g["code"]) for g in data["graphs"]]
    # reports of earlier versions have neither
    explanation.training = [Training.from_dict(graph) for graph in data.get("training", ())]
    explanation.unfused = [*data.get("unfused", ())]
    explanation.frames = [Frame(**frame) for frame in data["frames"]]
    explanation.error = data["error"]
    # reports of earlier versions have none, and no cost
    explanation._restored_timeline = [Span.from_dict(item) for item in data.get("timeline", ())]
    if "cost" in data:
        explanation.listening_s, explanation.rewrites_s = data["cost"]["listening_s"], data["cost"]["rewrites_s"]
    return explanation
