"""Graphs as text: what a person needs is there, and the same program gives the same text."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import fx

import framejit
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.graph.record import record_graph
from framejit.backends.fuse.lowering.whole import keeps
from framejit.backends.symbolic_sizes import with_symbolic_sizes


def recorded(f, *args, **options) -> Graph:
    """The graph that is recorded of a call."""
    found: list[Graph] = []

    def backend(gm: fx.GraphModule, examples: list[torch.Tensor]):
        found.append(record_graph(gm, examples, keeps))
        return gm.forward

    framejit.optimize(f, backend=backend, **options)(*args)
    (graph,) = found
    return graph


def lines(graph: Graph) -> list[str]:
    return [text for text, _ in text_of(graph).lines]


def test_operations_views_and_writes():
    def f(x, w):
        y = torch.mm(x, w.t())
        y[0].mul_(2.0)
        return y, x[1:], torch.tensor([1, 2])

    assert lines(recorded(f, torch.randn(2, 3), torch.randn(4, 3).t().contiguous().t())) == [
        "%0 w: f32[4, 3 | 1, 4]",
        "%1 x: f32[2, 3]",
        "%2: i64[2] = numbers of the program",
        "%3: f32[3, 4] = aten.t.default(%0)  view of %0",
        "%4: f32[2, 4] = aten.mm.default(%1, %3)",
        "%5: f32[4] = aten.select.int(%4, 0, 0)  view of %4",
        "%5 = aten.mul_.Tensor(%5, 2.0)  writes %5",
        "%6: f32[1, 3] from 3 = aten.slice.Tensor(%1, 0, 1, 9223372036854775807)  view of %1",
        "%7: i64[2] = aten.lift_fresh.default(%2)",
        "return %4, %6 (view; 0), %7",
        "writes that autograd counts of results: 1 of %4",
    ]


def test_composite_operations_hold_what_they_consist_of():
    def f(x):
        return F.pairwise_distance(x, x.flip(0))

    graph = recorded(f, torch.randn(2, 3))
    (whole,) = (node for node in graph.nodes if node.parts)
    text = "\n".join(lines(graph))
    assert whole.name == "pairwise_distance"
    assert "aten.pairwise_distance.default(%0, %1) {\n    %" in text and "\n    gives %" in text and "\n}\n" in text


def test_lines_of_the_program_are_in_the_text_but_only_by_number_in_the_key():
    def f(x):
        return x.sin() + 1

    def g(x):
        return x.sin() + 1

    one, other = text_of(recorded(f, torch.randn(2))), text_of(recorded(g, torch.randn(2)))
    assert "f: return x.sin() + 1" in str(one) and str(one) != str(other)
    assert one.key == other.key and "return x.sin()" not in one.key


def test_types_and_numbers_are_told_apart():
    x = torch.randn(2, 3)
    programs = [
        lambda x: x + 1, lambda x: x + 1.0, lambda x: x + True, lambda x: x * 0.0, lambda x: x * -0.0,
        lambda x: x + float("nan"),
    ]
    assert len({text_of(recorded(program, x)).key for program in programs}) == len(programs)


def test_symbolic_sizes_are_written_as_expressions():
    found = []

    @with_symbolic_sizes
    def backend(gm, examples):
        from framejit.backends.fuse.sizes.by_size import placeholders

        conditions = next(
            size.node.conditions
            for node in placeholders(gm)
            for size in node.meta["val"].shape
            if isinstance(size, torch.SymInt)
        )
        found.append(text_of(record_graph(gm, examples, keeps, conditions)))
        return gm.forward

    framejit.optimize(lambda x: torch.cat([x, x]) + 1, backend=backend, dynamic=True)(torch.randn(5, 3))
    (text,) = found
    assert not text.unwritten
    assert any("f32[2*x.size(0), x.size(1)" in line for line, _ in text.lines), str(text)
    assert any(line.startswith("size x.size(0): 2 to") for line, _ in text.lines)


def test_what_a_text_does_not_tell_is_said():
    graph = recorded(lambda x: x + 1, torch.randn(2))
    graph.nodes[0].args = (graph.inputs[0], object())
    assert "argument of type object" in text_of(graph).unwritten
    assert "0x" not in str(text_of(graph))


def test_inspect_shows_the_recorded_graph():
    fast = framejit.optimize(lambda x: (x + 1).relu())
    fast(torch.randn(3))
    (graph,) = framejit.inspect(fast).graphs
    assert "aten.relu.default" in graph.recorded and "test_text.py" in graph.recorded
