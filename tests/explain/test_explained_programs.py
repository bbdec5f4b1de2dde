"""Existing programs, explained by the unchanged command line: they print what they print, and the counts are those of
the events."""
import json
import os
import pathlib
import sys
from importlib.machinery import PathFinder

import pytest

import forked

HERE = pathlib.Path(__file__).parent
VISION = os.path.join(sys.prefix, "vision")  # where `make test` puts what torchvision_shim finds
PROGRAMS = sorted((HERE / "programs").glob("*.py"))
CAPTURED_WHOLE = {"distributions", "train_timm"}

# What `framejit explain` runs, with an event listener of the test's own beside it.
LISTENING = """
import atexit, collections, json, os, sys
import framejit
counts = collections.Counter()
framejit.events.subscribe(lambda event: counts.update([event.kind]))
atexit.register(lambda: json.dump(counts, open(os.environ["COUNTS"], "w")))
from framejit.cli import main
main(sys.argv[1:])
"""


def python(*arguments, **environment):
    paths = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "ignore", **environment}
    return forked.run(arguments, env=env, timeout=300)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_explained(program, tmp_path):
    for module in ("transformers", "timm", "scipy", "torchvision"):
        if module in program.read_text() and PathFinder.find_spec(module, [*sys.path, VISION]) is None:
            pytest.skip(f"{module} is not installed")
    plain = python(program)
    assert plain.returncode == 0, plain.stderr
    report, counts = tmp_path / "report.json", tmp_path / "counts.json"
    explained = python("-c", LISTENING, "explain", "--json", report, program, COUNTS=str(counts))
    assert (explained.returncode, explained.stdout) == (plain.returncode, plain.stdout), explained.stderr
    data, seen = json.loads(report.read_text()), json.loads(counts.read_text())
    summary = data["summary"]
    assert summary["graphs"] == seen.get("graph", 0) == len(data["graphs"])
    assert summary["graph_breaks"] == seen.get("graph_break", 0)
    assert summary["frames"] == seen["frame_done"] == len(data["frames"])
    assert summary["recompiles"] == seen.get("recompile", 0)
    assert [frame for frame in data["frames"] if frame["code"] == "FJ298"] == []
    findings = data["findings"]
    if program.stem in CAPTURED_WHOLE:
        assert findings == [] and summary["graph_breaks"] == 0 < summary["graphs"]
    else:
        assert findings
    assert [f["cost_us"] for f in findings] == sorted((f["cost_us"] for f in findings), reverse=True)
    for finding in findings:
        assert (
            finding["count"] >= 1 and finding["reason"] and "__stack" not in finding["reason"] + finding["provenance"]
        )
    assert python("-m", "framejit", "report", report).stdout.startswith(f"{summary['graphs']} graph")
