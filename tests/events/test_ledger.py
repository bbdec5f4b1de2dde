"""The ledger adds up events into one record for each function."""
import pytest
import torch

import framejit
from framejit.events.event import Event
from framejit.events.ledger import FunctionRecord, Ledger, Status

F = {"function": "f", "file": "a.py", "line": 3}
G = {"function": "g", "file": "a.py", "line": 9}
BREAK = {
    "file": "a.py", "line": 5, "column": 2, "reason": "because", "code": "FJ101", "hint": "do not", "user_stack": [],
    "in_graph_ops": 2,
}


@pytest.fixture
def ledger():
    return Ledger()


def note(ledger, kind, **fields):
    ledger.note(Event(kind, 0, 0, fields))


def frame(ledger, frame_id, where, state="compiled", reason="", breaks=()):
    note(ledger, "capture_started", frame_id=frame_id, **where)
    for broken in breaks:
        note(ledger, "graph_break", frame_id=frame_id, **{**broken, "function": where["function"]})
    note(ledger, "backend", frame_id=frame_id, name="eager", seconds=0.1)
    note(
        ledger, "frame_done", frame_id=frame_id, **where, state=state, reason=reason, seconds=0.5, n_graphs=1,
        n_ops=3, n_guards=4,
    )


def test_frames_of_one_function_add_up(ledger):
    frame(ledger, 1, F)
    frame(ledger, 2, G)
    frame(ledger, 3, F)
    f, g = ledger.records()
    assert (f.function, f.frames, f.graphs, f.ops, f.guards, f.seconds, f.backend) == ("f", 2, 2, 6, 8, 1.0, "eager")
    assert (g.function, g.frames) == ("g", 1)


def test_breaks_are_counted_by_place(ledger):
    frame(ledger, 1, F, breaks=[BREAK, {**BREAK, "line": 6}])
    frame(ledger, 2, F, breaks=[BREAK])
    [f] = ledger.records()
    assert [(b.line, b.count) for b in f.breaks.values()] == [(5, 2), (6, 1)]


def test_a_break_in_an_inlined_call_belongs_to_the_captured_function(ledger):
    note(ledger, "capture_started", frame_id=1, **F)
    note(ledger, "graph_break", frame_id=1, function="g", **BREAK)
    [f] = ledger.records()
    assert f.function == "f" and len(f.breaks) == 1


@pytest.mark.parametrize(
    ("states", "together"),
    [
        (["compiled"], "compiled"),
        (["compiled", "compiled"], "compiled"),
        (["compiled in parts", "compiled"], "compiled in parts"),
        (["compiled", "eager"], "compiled in parts"),
        (["skipped"], "skipped"),
        (["skipped", "eager"], "eager"),
        (["eager", "compiled"], "compiled in parts"),
    ],
)
def test_the_state_of_several_frames(ledger, states, together):
    for i, state in enumerate(states):
        frame(ledger, i, F, state=state)
    [f] = ledger.records()
    assert f.state == together


def test_the_last_reason_stays(ledger):
    frame(ledger, 1, F, state="skipped", reason="too hard")
    frame(ledger, 2, F)
    assert ledger.records()[0].reason == "too hard"


def test_a_frame_that_is_not_done_yet_is_there(ledger):
    note(ledger, "capture_started", frame_id=1, **F)
    assert ledger.records()[0].state == "being captured"


def test_recompiles(ledger):
    frame(ledger, 1, F)
    note(ledger, "recompile", frame_id=2, **F, failures=[])
    assert ledger.records()[0].recompiles == 1


def test_clear(ledger):
    frame(ledger, 1, F)
    ledger.clear()
    assert ledger.records() == []


def test_status_lists_graphs_that_are_not_fused_with_the_reason():
    def chosen(weight):
        return torch.nn.functional.rrelu(weight, training=True)

    framejit.optimize(chosen, backend="fuse")(torch.ones(2, 2, requires_grad=True))
    (unfused,) = framejit.status().unfused
    assert (unfused.function, unfused.reason) == (
        chosen.__qualname__,
        "aten::rrelu_with_noise has no form that makes a new tensor",
    )
    assert f"not fused, and run as ATen operations:\n  {unfused}" in str(framejit.status())
    framejit.reset()
    assert framejit.status().unfused == ()


def test_a_kernel_that_fails_is_listed_too(monkeypatch):
    from framejit.backends.fuse import compile_graph
    from framejit.backends.fuse.not_fusable import KernelFailed

    def fail(kernels, graph):
        raise KernelFailed("add_0 failed")

    monkeypatch.setattr(compile_graph, "compile_kernels", fail)
    with framejit.config.patch(cache_size=0), pytest.warns(framejit.FramejitWarning, match="add_0 failed"):
        framejit.optimize(lambda x: x + 1, backend="fuse")(torch.ones(2))
    (unfused,) = framejit.status().unfused
    assert unfused.reason == "add_0 failed" and unfused.graph.startswith("graph_")


def test_functions_left_to_python_are_named_by_their_reason():
    """Not a row each: a program has thousands of functions without tensors."""
    records = [FunctionRecord(f"helper{at}", "a.py", 1, state="skipped", reason="no tensor") for at in range(20)]
    told = str(Status((*records, FunctionRecord("other", "a.py", 7, state="eager", reason="too long"))))
    assert [line for line in told.splitlines() if "a.py:" in line and "a.py:7" not in line] == []
    assert "  helper0, helper1, " in told and "helper11 and 8 more: no tensor" in told and "helper12" not in told
    assert "  other: too long" in told
