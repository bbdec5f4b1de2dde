"""The parts of the page: escaping, drawings, trees, the timeline."""
import operator
import re

import pytest
import torch

import framejit
from framejit.events import Event
from framejit.events.timeline import Span, spans, to_dicts
from framejit.report.element import Html, element, join
from framejit.report.graph_drawing import LIMIT, drawing, parse
from framejit.report.guard_tree import parse as parse_tree
from framejit.report.guard_tree import tree
from framejit.report.kernels import kernels
from framejit.report.source import sources
from framejit.report.timeline_picture import timeline


def test_everything_but_html_is_escaped():
    made = element(
        "a", "<b>", Html("<i></i>"), None, [1, "&"], href='"x" <', class_="c", data_count=0, hidden=True, title=None
    )
    assert made == '<a href="&quot;x&quot; &lt;" class="c" data-count="0" hidden>&lt;b&gt;<i></i>1&amp;</a>'
    assert join(["<", Html("<")]) == "&lt;<"


def graph_of(fn, *inputs):
    return str(framejit.explain(fn)(*inputs).graphs[0].module.graph)


def test_a_graph_is_parsed():
    def f(x, y):
        a, b = torch.split(x, 2)
        return torch.nn.functional.softmax(a * y, dim=-1), b

    nodes = parse(graph_of(f, torch.ones(4), torch.ones(2)))
    by_label = {node.label: node for node in nodes}
    assert [node.label for node in nodes if node.is_input] == ["x", "y", "return"]
    assert by_label["mul"].inputs[-1] == "y" and by_label["return"].inputs and "softmax" in by_label


def test_every_node_and_edge_is_drawn_inside_the_picture():
    def f(x):
        y = x + 1
        for _ in range(5):
            y = y * x + y.sin()
        return y, x

    text = graph_of(f, torch.ones(3))
    picture = drawing(text, "graph")
    nodes = parse(text)
    assert picture.count('class="node"') == len(nodes)
    assert picture.count("<path") == sum(len(node.inputs) for node in nodes)
    width, height = (float(n) for n in re.search(r'viewBox="0 0 (\d+) (\d+)"', picture).groups())
    boxes = [
        tuple(map(float, found))
        for found in re.findall(r'<rect x="(-?\d+)" y="(-?\d+)" width="(\d+)" height="(\d+)"', picture)
    ]
    assert all(0 <= x and x + w <= width and 0 <= y and y + h <= height for x, y, w, h in boxes)
    for i, (x, y, w, h) in enumerate(boxes):
        for x2, y2, w2, h2 in boxes[i + 1 :]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_a_large_graph_is_not_drawn():
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(LIMIT):
        node = graph.call_function(operator.neg, (node,))
    graph.output(node)
    assert drawing(str(graph), "graph") is None and drawing("", "graph") is None


def test_the_guard_tree_is_that_of_the_log():
    from support import of_kind, recorded

    with recorded() as log:
        framejit.optimize(lambda m, x: m["k"][0](x))({"k": [torch.relu]}, torch.ones(2))
    [event] = of_kind(log, "guards")
    lines = event.tree_text.splitlines()

    def walk(branch, depth):
        yield depth, branch.text
        for inner in branch.branches:
            yield from walk(inner, depth + 1)

    walked = list(walk(parse_tree(event.tree_text), 0))
    assert len(walked) == len(lines)
    for (depth, text), line in zip(walked, lines):
        assert line.endswith(text) and len(line) - len(line.lstrip("│├└─ ")) == 3 * depth
    assert tree(event.tree_text).count("<li>") == len(lines) - 1


def event(kind, time_ns, **fields):
    return Event(kind, time_ns, 0, fields)


def test_spans_and_compiles():
    events = [
        event("capture_started", 1_000, frame_id=1, function="f"),
        event("capture_started", 2_000, frame_id=2, function="left open"),
        event("backend", 4_000, frame_id=1, seconds=2e-6, name="eager"),
        event("frame_done", 5_000, frame_id=1, function="f", state="compiled"),
        event("frame_done", 6_000, frame_id=3, function="never begun", state="eager"),
    ]
    [span] = spans(events)
    assert (span.function, span.start, span.end, span.state, span.compiles) == (
        "f", 1_000, 5_000, "compiled", [(2_000, 4_000)],
    )
    assert timeline([span]).count('class="bar"') == 1 and timeline([span]).count('class="part"') == 1
    [data] = to_dicts([span])
    assert data == {"function": "f", "start_us": 0.0, "end_us": 4.0, "state": "compiled", "compiles_us": [[1.0, 3.0]]}
    assert Span.from_dict(data) == Span("f", 0, 4_000, "compiled", [(1_000, 3_000)])
    assert "Nothing was captured" in timeline([])


def test_kernels():
    shown = kernels(
        [
            event("graph", 0, graph_id=3, graph_module=None, n_ops=1),
            event("fusion", 0, graph_id="named by the backend", text="k"),
            event("output_code", 0, graph_id=3, name="k", language="Triton", source="def k(): <", kernel={"GB/s": 812}),
            event("perf", 0, graph="f", compiled_us=None, eager_us=2.0, state="measuring"),
            event("perf", 1, graph="f", compiled_us=1.0, eager_us=2.0, state="compiled"),
            event("perf", 1, graph="g", compiled_us=1.0, eager_us=3.0, eager_is_least=True, state="compiled"),
        ]
    )
    assert shown.count('href="#graph-3"') == 2 and "def k(): &lt;" in shown and "GB/s 812" in shown
    assert ">2.00×" in shown and ">≥ 3.00×" in shown and "measuring" not in shown
    assert "no kernels" in kernels([])


def test_source_that_is_gone(explained):
    [finding, *_] = explained.findings
    finding.file, finding.excerpt = "/nowhere/a.py", "the line\n  ^^^"
    assert "the line" in sources([finding])


@pytest.mark.parametrize("text", ["é = x.item()", "\tx.item()"])
def test_marks_stand_on_bytes(text):
    from framejit.report.source import _marked

    class Found:
        line, end_line = 1, 1
        column = text.encode().index(b"x.item")
        end_column = len(text.encode())

    assert "<mark>x.item()</mark>" in _marked(text, [(1, Found)])


def test_kernels_of_the_fusing_backend_belong_to_the_captured_graph():
    def softplus(x):
        y = torch.log1p(torch.exp(x)) * 2
        framejit.graph_break()
        return y.sum(-1)

    fast = framejit.optimize(softplus, backend="fuse")
    explanation = framejit.findings.explanation.Explanation()
    listening = explanation.listen()
    for _ in range(60):
        fast(torch.ones(16, 1024))
    listening.stop()
    first, second = (graph.graph_id for graph in explanation.graphs)
    fused = {event.graph_id: event for event in explanation.events if event.kind == "output_code"}
    assert list(fused) == [first, second]
    assert fused[first].kernel == {"bytes": 2 * 4 * 16 * 1024} and fused[second].kernel == {
        "bytes": 4 * 16 * 1024 + 4 * 16
    }
    shown = kernels(explanation.events)
    assert f'href="#graph-{first}"' in shown and f'href="#graph-{second}"' in shown and "GB/s" in shown


def test_a_bandwidth_is_shown_where_bytes_and_time_are_known():
    perf = {"graph": "graph_3", "graph_id": 3, "eager_us": 2.0, "state": "compiled"}
    assert "4.0 GB/s" in kernels([event("perf", 0, compiled_us=1.0, bytes=4000, **perf)])
    assert "GB/s" not in kernels([event("perf", 0, compiled_us=1.0, bytes=None, **perf)])
    assert "GB/s" not in kernels([event("perf", 0, compiled_us=0.0, bytes=4000, **perf)])
