"""The findings as SARIF 2.1.0: the form in which editors and code hosts take the results of analyses."""
from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any

from framejit.findings.codes import CODES, page
from framejit.findings.finding import Finding
from framejit.version import __version__

if TYPE_CHECKING:
    from framejit.findings.explanation import Explanation

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def write_sarif(explanation: Explanation, path: str | os.PathLike[str]) -> None:
    with open(path, "w", encoding="utf-8") as f:
        json.dump(to_sarif(explanation), f, indent=2)


def to_sarif(explanation: Explanation) -> dict[str, Any]:

    findings = explanation.findings
    codes = sorted({finding.code for finding in findings})
    driver = {"name": "framejit", "version": __version__, "rules": [_rule(code) for code in codes]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding, codes) for finding in findings],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    return {
        "id": code, "shortDescription": {"text": CODES[code]}, "help": {"text": f"See {page(code)}."},
        "defaultConfiguration": {"level": "warning"},
    }


def _result(finding: Finding, codes: list[str]) -> dict[str, Any]:
    message = ". ".join(part for part in (finding.reason, finding.provenance, finding.hint) if part)
    result = {
        "ruleId": finding.code,
        "ruleIndex": codes.index(finding.code),
        "level": "warning",
        "message": {"text": message},
        "locations": [_location(finding.file, finding.line, finding.function, _columns(finding))],
        "occurrenceCount": finding.count,
        "properties": {
            name: getattr(finding, name) for name in ("cost_us", "rewrite", "rewrite_checked", "rewrite_note")
        },
    }
    if finding.callers:
        steps = [{"location": _location(file, line, function, {})} for file, line, function in finding.callers]
        result["stacks"] = [{"message": {"text": "called from"}, "frames": steps}]
    return result


def _location(file: str, line: int, function: str, columns: dict[str, int]) -> dict[str, Any]:
    uri = pathlib.Path(file).as_uri() if os.path.isabs(file) else pathlib.PurePath(file).as_posix()
    physical = {"artifactLocation": {"uri": uri}, "region": {"startLine": max(line, 1), **columns}}
    return {"physicalLocation": physical, "logicalLocations": [{"fullyQualifiedName": function, "kind": "function"}]}


def _columns(finding: Finding) -> dict[str, int]:
    """Columns count characters from 1 here, and bytes from 0 in a finding."""
    if finding.column is None or finding.end_column is None:
        return {}
    text = finding.excerpt.partition("\n")[0].encode()
    columns = {"startColumn": len(text[: finding.column].decode(errors="replace")) + 1}
    if finding.end_line in (None, finding.line):
        columns["endColumn"] = len(text[: finding.end_column].decode(errors="replace")) + 1
    return columns
