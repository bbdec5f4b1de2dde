"""Graphs with symbolic sizes as they are for some sizes."""

from __future__ import annotations

import pytest
import torch
from torch import fx

import framejit
from framejit.backends.autocast_nesting import nesting
from framejit.backends.fuse.sizes.static_sizes import of_sizes
from framejit.symbols.conditions import Conditions
from framejit.symbols.expression import Expression, Symbol
from framejit.symbols.sym_node import symbolic


def test_a_number_that_comes_last_is_no_result() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    size = graph.call_function(torch.ops.aten.sym_size.int, (x, 0))
    size.meta["val"] = symbolic(Expression.of(Symbol("n", 3, (2, 100))), Conditions())
    graph.output((doubled,))
    given = torch.randn(5, 2)
    (result,) = of_sizes(fx.GraphModule(torch.nn.Module(), graph), [given], (5,))(given)
    assert torch.equal(result, given * 2)


@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5, 6, 3)])
def test_autocast_that_is_left_in_another_part(sizes: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x + 1
            raise ValueError

    norm = torch.nn.LayerNorm(4)

    def through_norm(x: torch.Tensor) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            norm(x)
            raise ValueError

    for each in (fn, through_norm):
        captured = framejit.optimize(each, backend="fuse", dynamic=True)
        for size in sizes:
            with pytest.raises(ValueError):
                captured(torch.randn(size, 4))
            assert nesting() == 0
