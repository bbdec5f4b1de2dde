"""Logs, `status()`, `inspect` and explanations, where an entry of another process serves."""

from __future__ import annotations

import io

import pytest
import torch
from kept.processes import Run, one_folder

import framejit
from framejit.capture import kept_entry
from framejit.capture.replacement import keep_entry
from framejit.kept import surroundings

PROGRAM = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()).eval()
def target(x):
    with torch.no_grad():
        return net(x) * 2.0
args = (torch.ones(3, 4),)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path):
    with one_folder(tmp_path / "cache"):
        yield


def told(run):
    """What `status` and `inspect` say, without numbers of the process and times."""
    (record,) = [record for record in framejit.status().functions if record.function == "target"]
    inspected = framejit.inspect(run.optimized)
    return (
        record.state, record.reason, record.graphs, record.ops, record.guards, record.backend, record.entries,
        record.graph_ops_run > 0, record.share_in_graphs, inspected.n_kernels, inspected.source,
        [(graph.function, graph.externs, graph.after_fusion, graph.reason) for graph in inspected.graphs],
    )


def test_status_and_inspect_say_the_same():
    first = Run(PROGRAM, backend="fuse")
    assert first.captured
    before = told(first)
    framejit.reset()
    second = Run(PROGRAM, backend="fuse")
    assert not second.captured
    assert told(second) == before


def test_events_name_the_function():
    assert Run(PROGRAM, backend="fuse").captured
    second = Run(PROGRAM, backend="fuse")
    kinds = [event.kind for event in second.events if event.kind != "cache"]
    assert kinds[0] == "capture_found" and kinds.index("backend") < kinds.index("frame_done")
    found = second.events[[event.kind for event in second.events].index("capture_found")]
    done = next(event for event in second.events if event.kind == "frame_done")
    assert found.function == done.function == "target" and found.frame_id == done.frame_id


SELECTS = """
import torch
def target(x):
    with torch.no_grad():
        if x.sum() > 0:
            y = x + 1.0
        else:
            y = x - 1.0
        return y * 2.0
args = (torch.ones(3, 4),)
"""


def test_ifs_of_which_both_branches_are_in_the_graph():
    told = []
    for _ in range(2):
        log = io.StringIO()
        framejit.set_logs("selections", stream=log)
        try:
            run = Run(SELECTS, backend="fuse")
        finally:
            framejit.set_logs()
        selected = [event.fields for event in run.events if event.kind == "selected"]
        told.append(([{**fields, "frame_id": None} for fields in selected], log.getvalue()))
    assert not run.captured and len(selected) == 1
    assert selected[0]["line"] == 5 and told[0][1] and told[1] == told[0]
    done = next(event for event in run.events if event.kind == "frame_done")
    assert selected[0]["frame_id"] == done.frame_id


def test_logs_name_the_function():
    assert Run(PROGRAM, backend="fuse").captured
    log = io.StringIO()
    framejit.set_logs("cache", "fusion", stream=log)
    try:
        assert not Run(PROGRAM, backend="fuse").captured
    finally:
        framejit.set_logs()
    assert "hit: capture" in log.getvalue() and "of target (/nowhere/kept_program.py:4)" in log.getvalue()


@pytest.mark.parametrize("name", ["graph", "guards", "bytecode", "all"])
def test_logs_of_captures_show_them(name):
    texts = []
    for _ in range(2):
        log = io.StringIO()
        framejit.set_logs(name, stream=log)
        try:
            assert Run(PROGRAM).captured
        finally:
            framejit.set_logs()
        texts.append(log.getvalue())
    assert texts[0] and bool(texts[1])


def test_explain_and_verify_capture_for_themselves():
    assert Run(PROGRAM).captured
    second = Run(PROGRAM)
    assert not second.captured
    explanation = framejit.explain(second.module.target)(*second.module.args)
    assert "1 graph" in str(explanation)
    assert Run(PROGRAM, verify=1.0).captured


def test_what_can_not_be_kept_is_told():
    run = Run(PROGRAM.replace("* 2.0", "* 2.0 + len(repr(print_it))").replace("def target", "def print_it(): pass\n"
                                                                             "def target"))
    assert run.captured and run.said[-1] == "not kept: an address is part of a text"
    assert torch.equal(run.result, run.module.target(*run.module.args))


def test_what_is_looked_for_is_kept_under_the_same_key(monkeypatch):
    asked, made = [], surroundings.key_of_frame
    for user in (kept_entry, keep_entry):
        monkeypatch.setattr(user, "key_of_frame", lambda *frame: asked.append(frame) or made(*frame))
    first = Run(PROGRAM)
    assert len(asked) == 1, "a key takes a millisecond, and a capture needs one"
    second = Run(PROGRAM)
    assert first.captured and not second.captured
