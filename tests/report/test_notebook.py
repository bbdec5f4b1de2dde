"""Explanations and statuses in a notebook: HTML that is whole and escaped, needs nothing else, and has graphs drawn."""
import gc
import operator

import pytest
import torch

import framejit
from framejit.report.graph_drawing import beginning
from framejit.report.notebook import MOST_GRAPHS, MOST_NODES, explanation_cell, status_cell

from shown import Page


class Net(torch.nn.Module):
    def forward(self, x):
        h = torch.relu(x) * 2
        return h / h.max().repeat(17).tolist()[0]


@pytest.fixture
def status():
    fast = framejit.optimize(Net())
    fast(torch.ones(4))
    return framejit.status(), fast


def test_an_explanation(explained):
    text = explained._repr_html_()
    shown = Page(text)
    assert shown.classes["finding"] == len(explained.findings) == 2
    assert shown.classes["graph"] == shown.elements["svg"] == len(explained.graphs)
    assert shown.facts["graphs"] == len(explained.graphs) and shown.classes["node"] > 0
    assert "h / h.max().repeat(17).tolist()[0]" in text and "size 2 was expected at dimension 0, got 3" in text


def test_a_status(status):
    text = status[0]._repr_html_()
    shown = Page(text)
    assert "Net" in text and "compiled in parts" in text and ".tolist() of a tensor needs its data" in text
    assert shown.elements["svg"] == shown.classes["graph"] == 2 and "<title>relu</title>" in text
    assert [graph.function for graph in status[0].graphs] == ["Net"] * 2


def test_a_status_keeps_no_graph_alive(status):
    status, fast = status
    assert all(graph.text for graph in status.graphs)
    framejit.reset()
    del fast
    gc.collect()
    assert [graph.text for graph in status.graphs] == ["", ""] and "<svg" not in status._repr_html_()
    assert framejit.status().graphs == ()


def test_a_status_without_functions():
    framejit.reset()
    assert "framejit has seen no function yet" in framejit.status()._repr_html_()


def test_what_programs_say_is_escaped(explained):
    text = explained._repr_html_()
    assert "<script" not in text and "alert(&#x27;1&#x27;)" in text
    hostile = "</td><script>alert(1)</script>"
    text = status_cell([hostile], [[hostile]], [(hostile, [hostile])], [(hostile, 1, hostile)])
    assert "<script" not in text
    Page(text)


def test_it_loads_nothing_and_styles_nothing_else(explained, status):
    for text in (explained._repr_html_(), status[0]._repr_html_()):
        for word in ("http:", "https:", "@import", "url(", "<link", "<img", " id=", " href="):
            assert word not in text
        style = text.partition("<style>")[2].partition("</style>")[0]
        rules = [rule.partition("{")[0].split(",") for rule in style.split("}") if rule.strip()]
        assert rules and all(part.strip().startswith(".framejit") for selectors in rules for part in selectors)
        # colours that are read on white and on black
        assert "#fff" not in style and "#000" not in style and "color: inherit" in style


def large(operations):
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(operations):
        node = graph.call_function(operator.neg, (node,))
    graph.output(node)
    return str(graph)


def test_of_a_large_graph_the_beginning_is_drawn():
    text = beginning(large(MOST_NODES), "a graph", MOST_NODES)
    assert text.count('class="node"') == MOST_NODES
    assert f"The first {MOST_NODES} of {MOST_NODES + 2} nodes; 2 nodes left out." in text
    whole = beginning(large(MOST_NODES - 2), "a graph", MOST_NODES)
    assert whole.count('class="node"') == MOST_NODES and "left out" not in whole
    assert beginning("", "a graph", MOST_NODES) is None


def test_of_many_graphs_the_first_are_drawn():
    text = status_cell(["function"], [["f"]], [], [(f"graph_{n} of f", 3, large(3)) for n in range(MOST_GRAPHS + 5)])
    assert text.count("<svg") == MOST_GRAPHS and "and 5 more" in text


def test_an_explanation_of_nothing():
    from framejit.findings.explanation import Explanation

    assert set(Page(explanation_cell(Explanation())).facts.values()) == {0}
