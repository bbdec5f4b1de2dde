"""Lowering compared with eager, through the interpreter of loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import framejit
from framejit.backends.fuse.loop_ir.nodes import ComputeNode, ExternNode, LoweredGraph
from tests.fuse.interpreter import Interpreter
from tests.fuse.stages import lower

from support import seed


def lowered(f: Callable[..., Any], *args: Any) -> LoweredGraph:
    """What the only graph of a call is lowered to."""
    graphs: list[LoweredGraph] = []

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(lower(gm, examples))
        return gm.forward

    framejit.optimize(f, backend=backend)(*args)
    assert len(graphs) == 1, f"{len(graphs)} graphs"
    return graphs[0]


def externs(graph: LoweredGraph) -> list[str]:
    """The names of what is left to ATen."""
    return [
        getattr(node.function, "__name__", str(node.function)).partition(".")[0]
        for node in graph.nodes
        if isinstance(node, ExternNode)
    ]


def kernels(graph: LoweredGraph) -> list[ComputeNode]:
    """The loop nests."""
    return [node for node in graph.nodes if isinstance(node, ComputeNode)]


def check(
    f: Callable[..., Any], *args: Any, atol: float | None = None, rtol: float | None = None, fused: bool = True,
    exact_strides: bool = True
) -> LoweredGraph:
    """Compare the result, its sizes, strides and aliases, and what is left in the arguments with eager. `fused`:
    nothing may be left to ATen."""
    mine, theirs = copies(args), copies(args)
    graphs: list[LoweredGraph] = []
    failures: list[Exception] = []

    def backend(gm: torch.fx.GraphModule, examples: list[torch.Tensor]) -> Callable[..., Any]:
        try:
            graph = lower(gm, examples)
        except Exception as e:
            failures.append(e)  # the program would go on without the backend
            raise
        graphs.append(graph)
        return lambda *inputs: tuple(Interpreter(graph).run(inputs))

    seed()
    expected = f(*theirs)
    seed()
    got = framejit.optimize(f, backend=backend)(*mine)
    if failures:
        raise failures[0]
    assert graphs, "no graph was captured"
    compare(got, expected, atol, rtol, exact_strides)
    compare(mine, theirs, atol, rtol, exact_strides)
    assert [tensor._version for tensor in tensors(mine)] == [tensor._version for tensor in tensors(theirs)]
    a, b = tensors([got, mine]), tensors([expected, theirs])
    for i, (x, y) in enumerate(zip(a, b)):
        for j in range(i):
            assert (x is a[j]) == (y is b[j]), "other objects are the same"
            assert (_memory(x) == _memory(a[j])) == (_memory(y) == _memory(b[j])), "other tensors share memory"
    if fused:
        aliases = ("_increment_version", "count_exactly", "detach", "view_of", "view_in_another_dtype", "detached_view")
        assert not [name for graph in graphs for name in externs(graph) if name not in aliases], externs(graphs[0])
    return graphs[0]


def compare(
    got: Any, expected: Any, atol: float | None = None, rtol: float | None = None, exact_strides: bool = True
) -> None:
    """Values, dtypes, sizes and strides must be the same."""
    assert type(got) is type(expected), (got, expected)
    if isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            compare(one, other, atol, rtol, exact_strides)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, atol=atol, rtol=rtol, equal_nan=True)
        if exact_strides and expected.numel():
            assert [s for s, n in zip(got.stride(), got.shape) if n != 1] == [
                s for s, n in zip(expected.stride(), expected.shape) if n != 1
            ], (got.shape, got.stride(), expected.stride())
    else:
        assert got == expected


def copies(tree: Any) -> Any:
    """A copy of a structure with tensors of its own, each in the memory layout it has."""
    if isinstance(tree, torch.nn.Parameter):
        return torch.nn.Parameter(tree.detach().clone(), tree.requires_grad)
    if isinstance(tree, torch.Tensor):
        base = torch.empty(tree.untyped_storage().nbytes() // tree.itemsize, dtype=tree.dtype, device=tree.device)
        copy = base.as_strided(tree.shape, tree.stride(), tree.storage_offset()).detach()
        base.copy_(tree.as_strided(base.shape, (1,), 0))
        return torch.empty(0, dtype=tree.dtype, device=tree.device).set_(
            copy.untyped_storage(), tree.storage_offset(), tree.shape, tree.stride()
        )
    return type(tree)(map(copies, tree)) if isinstance(tree, (tuple, list)) else tree


def tensors(tree: Any) -> list[torch.Tensor]:
    """The tensors in it."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [tensor for item in tree for tensor in tensors(item)] if isinstance(tree, (tuple, list)) else []


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
