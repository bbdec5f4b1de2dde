"""`explain(fn)(*args)`: one call and what the compiler decided in it."""
import json

import torch

import framejit
from framejit.events import Event
from framejit.findings.explanation import Explanation

from support import CountingBackend

X = torch.arange(1.0, 5.0)


def inner(x):
    return x / x.max().repeat(17).tolist()[0]


def outer(x):
    return inner(torch.tanh(x)) + 1


def test_it_runs_the_function():
    explanation = framejit.explain(outer)(X)
    assert torch.equal(explanation.result, outer(X))
    assert explanation.error is None


def test_graphs():
    explanation = framejit.explain(lambda x: x.sin() + 1)(X)
    [graph] = explanation.graphs
    assert graph.n_ops == 2
    assert isinstance(graph.module, torch.fx.GraphModule)
    assert explanation.findings == []
    assert "1 graph with 2 operations, 0 graph breaks" in str(explanation)


def test_a_finding_says_where_why_and_what_to_do():
    explanation = framejit.explain(outer)(X)
    [finding] = explanation.findings
    line = inner.__code__.co_firstlineno + 1
    assert (finding.file, finding.line, finding.function) == (__file__, line, "inner")
    assert finding.code.startswith("FJ") and "tolist" in finding.reason and finding.hint
    assert [(caller[1], caller[2]) for caller in finding.callers] == [(outer.__code__.co_firstlineno + 1, "outer")]
    report = str(explanation)
    for part in (f"{__file__}:{line}, in inner", finding.reason, finding.hint, "called from"):
        assert part in report


def test_a_break_met_often_is_one_finding():
    explanation = Explanation()
    fields = dict(
        function="f", file="a.py", line=3, column=4, reason="because", code="FJ101", hint="",
        user_stack=[("a.py", 3, "f")], in_graph_ops=1,
    )
    for frame_id, line in enumerate((3, 3, 5)):
        explanation.hear(Event("graph_break", 0, 0, {**fields, "frame_id": frame_id, "line": line}))
    assert [(finding.line, finding.count) for finding in explanation.findings] == [(3, 2), (5, 1)]
    assert "a.py:3, in f (2 times)" in str(explanation)


def test_what_was_compiled_before_is_explained_all_the_same():
    fast = framejit.optimize(outer)
    fast(X)
    first, again = framejit.explain(fast)(X), framejit.explain(fast)(X)
    assert len(first.findings) == len(again.findings) == 1
    assert len(first.graphs) == len(again.graphs) > 0


def test_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    explanation = framejit.explain(model)(X)
    assert len(explanation.graphs) == 1
    torch.testing.assert_close(explanation.result, model(X))


def test_options_are_those_of_optimize():
    backend = CountingBackend()
    framejit.explain(outer, backend=backend)(X)
    assert backend.graphs


def test_an_exception_of_the_call_is_kept():
    def f(x):
        x = x + 1
        raise ValueError("not today")

    explanation = framejit.explain(f)(X)
    assert isinstance(explanation.error, ValueError)
    assert "the call raised ValueError: not today" in str(explanation)


def test_json():
    data = json.loads(framejit.explain(outer)(X).to_json())
    assert data["schema"] == "framejit.explain/1"
    assert {
        "schema", "findings", "graphs", "frames", "recompiles", "summary", "versions", "error", "timeline", "cost",
        "training", "unfused",
    } == set(data)
    [finding] = data["findings"]
    assert {"code", "file", "line", "column", "function", "reason", "hint", "count"} <= set(finding)
    assert len(data["graphs"]) > 1


def test_it_stops_listening():
    explanation = framejit.explain(outer)(X)
    before = len(explanation.graphs)
    framejit.optimize(lambda x: x + 1)(X)
    assert len(explanation.graphs) == before
