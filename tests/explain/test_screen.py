"""What `framejit explain` prints of a long report: one screen, libraries under the program's line that leads there."""
import json
import os
import sysconfig

import pytest

from framejit.findings.explanation import Explanation
from framejit.findings.finding import Finding
from framejit.findings.screen import LINES, screen

import forked

LIBRARY = os.path.join(sysconfig.get_paths()["stdlib"], "somewhere.py")
USER = ("script.py", 7, "<module>")


def explained(*findings):
    explanation = Explanation()
    for i, (file, cost_us, led_from) in enumerate(findings):
        finding = Finding(
            "FJ106", file, i + 1, None, None, None, "f", "bool() of a tensor needs its data", "", "", [], "",
            cost_us=cost_us, led_from=led_from,
        )
        explanation._found.by_key[finding.key] = finding
    return explanation


def test_a_short_report_is_printed_as_it_is():
    explanation = explained(("script.py", 5.0, None))
    assert screen(explanation) == str(explanation)


def test_libraries_are_told_under_the_line_that_leads_there_and_what_costs_most_comes_first():
    found = [(LIBRARY, 3.0, USER)] * 12 + [("script.py", 20.0, None), ("script.py", 1.0, None), (LIBRARY, 50.0, None)]
    lines = screen(explained(*found)).splitlines()
    assert len(lines) <= LINES
    items = [line for line in lines[1:] if line and not line.startswith(" ")]
    assert items[0].startswith(f"{LIBRARY}:15") and items[2].startswith("script.py:13") and len(items) == 4
    assert items[1] == "script.py:7, in <module>"
    assert "  leads to graph breaks at 12 places in libraries, 36 µs outside graphs" in lines
    assert items[3].startswith("1 more finding, ")


SCRIPT = """
import sys, textwrap
import torch
sys.path.insert(0, "site-packages")
import library

def mine(x):
    return library.inner(x)

x = torch.ones(3)
mine(x)
for _ in range(2):
    library.outer(x)
"""
# no lines that would be the same twice: a place is told once
LIBRARY_CODE = "\n".join(
    ["def inner(x):", "    print(float(x.sum()))", "    return x + 1", "def outer(x):"]
    + [f"    print(x.max().tolist() + {i})" for i in range(12)]
    + ["    return x"]
)


@pytest.mark.process
def test_the_line_of_the_script_that_leads_to_a_break(tmp_path):
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "library.py").write_text(LIBRARY_CODE)
    (tmp_path / "script.py").write_text(SCRIPT)
    done = {}
    for options in ((), ("--full",)):
        done[options] = forked.run(
            ["-m", "framejit", "explain", *options, "--json", "report.json", "script.py"], cwd=tmp_path,
            timeout=120,
        )
    findings = json.loads((tmp_path / "report.json").read_text())["findings"]
    led_from = {finding["function"]: finding["led_from"] for finding in findings}
    script = str(tmp_path / "script.py")
    assert led_from == {"inner": [script, 8, "mine"], "outer": [script, 13, "<module>"]}
    brief, full = (done[options].stderr for options in ((), ("--full",)))
    assert len(brief.splitlines()) <= LINES < len(full.splitlines())
    assert f"{script}:13, in <module>\n[framejit]     library.outer(x)" in brief
    assert brief.count("led to by") == 0 and f"led to by {script}:13, in <module>" in full
    report = forked.run(["-m", "framejit", "report", "report.json"], cwd=tmp_path, env={**os.environ}, timeout=120)
    assert f"led to by {script}:13, in <module>" in report.stdout
