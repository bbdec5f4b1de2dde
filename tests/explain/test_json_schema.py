"""The JSON report: every field is documented, and a report that was read prints as it did."""
import json
import pathlib

import pytest
import torch

import framejit
from framejit.findings.saved_report import NotAReport, read_report
from framejit.findings.schema import SCHEMA

X = torch.arange(1.0, 5.0)
SCHEMA_PAGE = pathlib.Path(__file__).parents[2] / "docs" / "explain_schema.md"


def program(x):
    n = x.max().item()
    print(n)
    return x / n


@pytest.fixture
def explanation():
    return framejit.explain(program)(X)


def test_every_field_is_documented(explanation):
    data, page = explanation.to_dict(), SCHEMA_PAGE.read_text()
    assert SCHEMA in page
    names = {*data, *data["summary"], *data["versions"], *data["findings"][0], *data["graphs"][0], *data["frames"][0]}
    names |= {*data["cost"], *data["timeline"][0]}
    assert [name for name in sorted(names) if f"`{name}`" not in page] == []


def test_fields_of_recompiles_are_documented():
    from framejit.findings import recompiles

    page = SCHEMA_PAGE.read_text()
    for kind in (recompiles.Recompile, recompiles.Miss, recompiles.Forecast):
        assert [name for name in kind.__dataclass_fields__ if f"`{name}`" not in page] == []


def test_what_the_issue_asks_of_a_finding(explanation):
    for finding in explanation.to_dict()["findings"]:
        assert {
            "code", "file", "line", "column", "function", "reason", "provenance", "count", "cost_us", "rewrite",
        } <= set(finding)


def test_a_report_that_was_read_prints_the_same(explanation, tmp_path):
    path = tmp_path / "report.json"
    explanation.save(path)
    again = read_report(path)
    assert str(again) == str(explanation)
    assert again.to_json() == explanation.to_json()


def test_counts_are_those_of_the_events(explanation):
    kinds = [event.kind for event in explanation.events]
    summary = explanation.to_dict()["summary"]
    assert summary["graphs"] == kinds.count("graph")
    assert summary["graph_breaks"] == kinds.count("graph_break")
    assert summary["frames"] == kinds.count("frame_done")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "not JSON"),
        ("[1, 2]", "no report"),
        ("{}", "no report"),
        ('{"schema": "framejit.explain/9"}', "framejit.explain/9"),
        ('{"schema": "framejit.explain/1"}', "missing"),
        (
            '{"schema": "framejit.explain/1", "findings": [3], "graphs": [], "frames": [], "recompiles": [], "error": '
            'null}',
            "form",
        ),
    ],
)
def test_what_is_no_report(tmp_path, text, complaint):
    path = tmp_path / "report.json"
    path.write_text(text)
    with pytest.raises(NotAReport, match=complaint):
        read_report(path)


def test_sarif(explanation, tmp_path):
    path = tmp_path / "report.sarif"
    explanation.to_sarif(path)
    data = json.loads(path.read_text())
    assert data["version"] == "2.1.0" and data["$schema"].endswith("sarif-2.1.0.json")
    [run] = data["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert {rule["id"] for rule in rules} == {finding.code for finding in explanation.findings}
    assert len(run["results"]) == len(explanation.findings)
    for result, finding in zip(run["results"], explanation.findings, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        [location] = result["locations"]
        region = location["physicalLocation"]["region"]
        assert region["startLine"] == finding.line
        line = finding.excerpt.splitlines()[0]
        carets = finding.excerpt.splitlines()[1]
        assert (
            line[region["startColumn"] - 1 : region["endColumn"] - 1]
            == line[carets.index("^") : carets.rindex("^") + 1]
        )
        assert location["physicalLocation"]["artifactLocation"]["uri"].startswith("file:///")
