"""The checker of graphs finds each kind of broken graph."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from framejit.backends.fuse.graph.check import BrokenGraph, ResultsChecker, check
from framejit.backends.fuse.graph.graph import Constant, Graph, HiddenBase, HiddenView
from framejit.backends.fuse.graph.graph_text import text_of
from framejit.backends.fuse.graph.node import Node
from framejit.backends.fuse.graph.value import Value
from framejit.fakes.light_torch import light

aten = torch.ops.aten


class Making:
    """Makes graphs operation by operation."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_fallback_kernels=False)
        self.graph = Graph(fake_mode=self.mode)

    def fake(self, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        with light(), self.mode:
            return torch.empty(sizes, dtype=dtype)

    def input(self, name: str, *sizes: int) -> Value:
        value = Value(self.fake(*sizes))
        self.graph.inputs.append(value)
        self.graph.names.append(name)
        return value

    def node(self, operation, *args, result) -> Node:
        return self.graph.append(Node(operation, args, {}, result, ""))


@pytest.fixture
def made() -> tuple[Making, Value, Value]:
    """x + x, and its transpose."""
    m = Making()
    x = m.input("x", 2, 3)
    total = Value(m.fake(2, 3))
    m.node(aten.add.Tensor, x, x, result=total)
    m.graph.outputs = [total]
    return m, x, total


def broken(graph: Graph, why: str) -> None:
    with pytest.raises(BrokenGraph, match=why):
        check(graph)


def test_a_whole_graph_passes(made):
    m, x, total = made
    check(m.graph)
    ResultsChecker().check(m.graph)
    assert [*x.users] == m.graph.nodes and total.maker is m.graph.nodes[0]


def test_a_value_that_is_made_twice(made):
    m, x, total = made
    m.node(aten.relu.default, x, result=total)
    broken(m.graph, "made before|said to be made by")


def test_a_value_that_is_used_before_it_is_made(made):
    m, x, total = made
    m.node(aten.relu.default, total, result=Value(m.fake(2, 3)))
    check(m.graph)
    m.graph.nodes.reverse()
    broken(m.graph, "before it is made")


def test_a_value_that_nobody_makes(made):
    m, x, total = made
    m.node(aten.relu.default, Value(m.fake(2, 3)), result=Value(m.fake(2, 3)))
    broken(m.graph, "nobody makes")


def test_an_output_that_nobody_makes(made):
    m, _, _ = made
    m.graph.outputs = [Value(m.fake(2))]
    broken(m.graph, "returned that nobody makes")


def test_users_that_are_none(made):
    m, x, total = made
    m.graph.nodes[0].args = (total, total)
    broken(m.graph, "before it is made")
    m.graph.nodes[0].args = (x, x)
    del x.users[m.graph.nodes[0]]
    broken(m.graph, "users")


def test_a_view_in_another_storage(made):
    m, x, total = made
    m.node(aten.t.default, total, result=Value(m.fake(2, 3), base=total))
    broken(m.graph, "another storage than its base")


def test_a_view_that_is_not_said_to_be_one(made):
    m, x, total = made
    m.node(aten.t.default, total, result=Value(m.fake(2, 3), storage=total.storage))
    broken(m.graph, "no view of one")


def test_a_write_that_is_not_said(made):
    m, x, total = made
    node = m.node(aten.relu_.default, total, result=total)
    check(m.graph)
    assert node.writes == (total,)
    node.writes = ()
    broken(m.graph, "writes what it does not say")
    node.writes = (total, x)
    broken(m.graph, "does not take")


def test_running_statistics_are_written_in_training_though_the_schema_does_not_say_so():
    m = Making()
    x, mean, var = m.input("x", 2, 3), m.input("mean", 3), m.input("var", 3)
    result = Value(m.fake(2, 3))
    node = m.node(aten.batch_norm.default, x, None, None, mean, var, True, 0.1, 1e-5, False, result=result)
    assert node.writes == (mean, var)
    check(m.graph)


def test_metadata_of_another_tensor(made):
    m, x, total = made
    total.dtype = torch.float64
    broken(m.graph, "dtype")
    total.dtype, total.strides = torch.float32, (1, 2)
    broken(m.graph, "strides")


def test_results_that_the_operation_does_not_give(made):
    m, x, total = made
    wrong = Value(m.fake(2, 4))
    m.node(aten.relu.default, total, result=wrong)
    check(m.graph)
    with pytest.raises(BrokenGraph, match="relu"):
        ResultsChecker().check(m.graph)


@pytest.mark.parametrize("what", ["operation", "argument", "result", "dtype"])
def test_what_was_checked_is_checked_again_where_a_pass_has_changed_it(made, what):
    m, x, total = made
    results, node = ResultsChecker(), m.graph.nodes[0]
    results.check(m.graph)
    if what == "operation":
        node.operation = aten.gt.Tensor
    elif what == "argument":
        node.args = (Value(m.fake(4, 2, 3)), *node.args[1:])
    elif what == "result":
        node.result = Value(m.fake(7))
    else:
        total.dtype = torch.float64
    with pytest.raises(BrokenGraph, match="gives"):
        results.check(m.graph)


def test_constants_that_are_no_such_tensors(made):
    m, x, total = made
    m.graph.constant(Value(m.fake(2)), Constant(torch.ones(3)))
    broken(m.graph, "stands for")


def test_inputs_and_outputs_that_there_are_not(made):
    m, x, total = made
    m.graph.hidden_views = {3: HiddenView(HiddenBase(torch.float32, (2,), (1,)), 0, 0)}
    broken(m.graph, "said to be a view")
    m.graph.hidden_views, m.graph.views = {}, {3: 0}
    broken(m.graph, "said to be a view")
    m.graph.views, m.graph.counted_writes = {}, {2: 1}
    broken(m.graph, "input that there is not")
    m.graph.counted_writes = {}
    m.graph.names.append("y")
    broken(m.graph, "names")


def test_graphs_inside_of_operations():
    """A branch may use what is known outside of it and its own inputs; what it makes is not known outside."""
    m = Making()
    x = m.input("x", 2, 3)
    body = Graph(inputs=[Value(m.fake(2, 3))], names=["carried"])
    inner = Value(m.fake(2, 3))
    body.append(Node(aten.add.Tensor, (body.inputs[0], x), {}, inner, ""))
    body.outputs = [inner]
    result = Value(m.fake(2, 3))
    node = m.graph.append(Node(aten.relu.default, (x,), {}, result, "", parts=(body, Graph(outputs=[x]))))
    m.graph.outputs = [result]
    check(m.graph)
    assert [*x.users] == [body.nodes[0], node] and [*m.graph.all_nodes()] == [body.nodes[0], node]
    assert str(text_of(m.graph)) == "\n".join(
        [
            "%0 x: f32[2, 3]",
            "%1: f32[2, 3] = aten.relu.default(%0) {",
            "    takes %2 carried: f32[2, 3]",
            "    %3: f32[2, 3] = aten.add.Tensor(%2, %0)",
            "    gives %3",
            "} {",
            "    gives %0",
            "}",
            "return %1",
            "writes that autograd counts: none; not known of %0",
        ]
    )
    m.graph.outputs = [inner]
    broken(m.graph, "returned that nobody makes")


def test_writes_inside_are_writes_of_the_whole():
    m = Making()
    x = m.input("x", 2, 3)
    body = Graph(nodes=[Node(aten.relu_.default, (x,), {}, x, "")], outputs=[x])
    node = m.graph.append(Node(aten.relu.default, (x,), {}, x, "", parts=(body,)))
    assert node.writes == (x,)
    check(m.graph)
    node.writes = ()
    broken(m.graph, "does not say")


# ---- changes --------------------------------------------------------------------------------------------


def test_nodes_are_replaced_and_taken_out(made):
    m, x, total = made
    (add,) = m.graph.nodes
    relu = m.node(aten.relu.default, total, result=Value(m.fake(2, 3)))
    m.graph.outputs = [relu.result]
    with pytest.raises(ValueError, match="still in use"):
        m.graph.remove([relu])
    m.graph.replace_uses(relu.result, total)
    m.graph.remove([relu])
    assert m.graph.nodes == [add] and m.graph.outputs == [total] and not total.users
    check(m.graph)
