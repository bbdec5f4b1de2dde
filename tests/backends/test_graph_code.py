"""The function of a graph in fewer instructions: the same operations in the same order, and no result that lives
longer."""

from __future__ import annotations

import dis
import operator
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

from framejit.backends.graph_code import MOST_NESTED, MOST_STATEMENTS, compact


def traced(fn: Callable[..., Any]) -> fx.GraphModule:
    """A graph that returns a tuple, as captured ones do."""
    module = fx.symbolic_trace(fn)
    output = next(node for node in module.graph.nodes if node.op == "output")
    if not isinstance(output.args[0], (tuple, list)):
        output.args = ((output.args[0],),)
    module.recompile()
    return module


def chain(x, y):
    total = x
    for _ in range(6):
        total = total + y * 0.5
    return total


def used_twice(x, y):
    a = x * y
    b = a + 1
    return a - b, b


def in_place(x, y):
    a = x.clone()
    b = a.add_(y)
    c = a * 2
    return b + c, a


def unused(x, y):
    x.relu()
    a = x + 1
    a.sigmoid()
    return a * y


def calls(x, y):
    return torch.cat([x.unsqueeze(0), torch.relu(y)[None, :]], dim=0).sum(0, keepdim=True), torch.where(x > y, x, -y)


def attributes(x, y):
    a = x * 2
    return a.real + y.shape[0], a.shape[0]


def unpacked(x, y):
    values, places = torch.sort(x + y)
    return values[places] * 2, values[1:]


@pytest.mark.parametrize("fn", [chain, used_twice, in_place, unused, calls, attributes, unpacked])
def test_it_gives_what_the_graph_gives(fn):
    module = traced(fn)
    for _ in range(2):
        x, y = torch.randn(4), torch.randn(4)
        torch.testing.assert_close(compact(module)(x, y), module.forward(x, y), rtol=0, atol=0)


def operations(run: Callable[..., Any], *args: Any) -> list[str]:
    from torch.utils._python_dispatch import TorchDispatchMode

    found = []

    class Log(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found.append(str(func))
            return func(*args, **(kwargs or {}))

    with Log():
        run(*args)
    return found


@pytest.mark.parametrize("fn", [chain, used_twice, in_place, unused, calls, unpacked])
def test_the_order_of_operations_stays(fn):
    module = traced(fn)
    args = torch.randn(4), torch.randn(4)
    assert operations(compact(module), *args) == operations(module.forward, *args)


def test_what_would_change_the_order_is_not_moved():
    """`neg` stands behind `sigmoid` in the graph, and in front of it in the expression that uses both."""
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a = graph.call_method("sigmoid", (x,))
    b = graph.call_method("neg", (y,))
    graph.output(
        (
            graph.call_function(operator.sub, (b, a)),
            graph.call_function(operator.getitem, (graph.call_method("neg", (a,)), 0)),
        )
    )
    module = fx.GraphModule(torch.nn.Module(), graph)
    args = torch.randn(2), torch.randn(2)
    assert operations(compact(module), *args) == operations(module.forward, *args)


class Watched:
    """Stands in for tensors: counts those alive at each operation."""

    alive = 0

    def __init__(self) -> None:
        type(self).alive += 1
        weakref.finalize(self, self._gone)

    @classmethod
    def _gone(cls) -> None:
        cls.alive -= 1

    def __add__(self, other: Any) -> Watched:
        seen.append(Watched.alive)
        return Watched()

    __mul__ = __sub__ = __add__


seen: list[int] = []


def branching(x, y):
    a = x + y
    b = a * 2
    c = b + y * 3
    d = a - c
    return d + x * 2


@pytest.mark.parametrize("fn", [chain, branching, used_twice])
def test_no_result_lives_longer(fn):
    module, counts = traced(fn), []
    x, y = Watched(), Watched()  # the caller of a graph holds its inputs
    for run in (module.forward, compact(module)):
        seen.clear()
        run(x, y)
        counts.append([*seen])
    theirs, ours = counts
    assert len(ours) == len(theirs) and all(mine <= other for mine, other in zip(ours, theirs)), counts


def test_fewer_instructions():
    module = traced(chain)
    ours, theirs = (len([*dis.get_instructions(run)]) for run in (compact(module), module.forward))
    assert ours < 0.75 * theirs
    assert len(compact(module).__code__.co_varnames) == 4  # self, x, y and one for the total
    assert compact(module).__code__.co_filename == module.forward.__code__.co_filename


def test_what_the_compiler_could_not_take():
    def deep(x, y):
        for _ in range(MOST_STATEMENTS // 2):
            x = (x * 1.0).relu()
        return x

    def long(x, y):
        for _ in range(MOST_STATEMENTS + 1):
            x = x + y
        return x

    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(compact(traced(deep))(x, y), (x.relu(),))
    assert MOST_NESTED < 50
    module = traced(long)
    assert compact(module) == module.forward


def test_other_forms_run_as_they_are():
    module = traced(chain)
    graph = module.graph
    first = next(node for node in graph.nodes if node.op == "call_function")
    first.target = operator.iadd  # written as a statement of its own
    module.recompile()
    assert compact(module) == module.forward
