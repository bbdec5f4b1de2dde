"""Graphs with symbolic sizes as they are for some sizes."""

from __future__ import annotations

import torch
from torch import fx

from framejit.backends.fuse.sizes.static_sizes import of_sizes


def test_a_number_that_comes_last_is_no_result() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    x.meta["val"] = torch.empty(3, 2)
    doubled = graph.call_function(torch.ops.aten.mul.Tensor, (x, 2))
    graph.call_function(torch.ops.aten.sym_size.int, (x, 0))
    graph.output((doubled,))
    given = torch.randn(5, 2)
    (result,) = of_sizes(fx.GraphModule(torch.nn.Module(), graph), [given], (5,))(given)
    assert torch.equal(result, given * 2)
