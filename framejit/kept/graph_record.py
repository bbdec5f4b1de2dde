"""A captured graph as plain data: its Python as torch.fx writes it, and the names of what that calls.

In another process the graph is only run where it measures quicker than the plan, or where the plan does not take an
input; so its Python is compiled when it is first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from framejit.backends.opaque_call import OpaqueCall
from framejit.backends.own_operations import NAMESPACE, define, is_of_any_process
from framejit.environment.inference_modes import enter_inside
from framejit.kept import plain_values
from framejit.kept.not_kept import DoesNotFit, NotKept
from framejit.kept.object_table import find, place_of

_ROOTS: Final = ("torch", "_operator", "operator", "math", "builtins")


def written_graph(module: fx.GraphModule) -> list[Any]:
    """The record of a graph. Raises NotKept for one that calls anything but functions of torch's and Python's."""
    for node in module.graph.nodes:
        if node.op in ("get_attr", "call_module"):
            raise NotKept("its graph holds an object of this process")
        if isinstance(node.target, OpaqueCall):
            raise NotKept(node.target.why)
        is_known = _is_of_library(node.target) or node.target is enter_inside or _is_own(node)
        if node.op == "call_function" and not is_known:
            raise NotKept(f"its graph calls {getattr(node.target, '__qualname__', type(node.target).__name__)}")
    from framejit.backends.fuse.layers.python_text import python_text  # for those who write one

    text, used = python_text(module.graph)
    own = {node.target._opname for node in module.graph.nodes if node.op == "call_function" and _is_own(node)}
    return [text, [[name, _written_global(value)] for name, value in sorted(used.items())], sorted(own)]


def _is_own(node: fx.Node) -> bool:
    """Whether a node calls an operation of framejit's that does the same in another process."""
    operation = node.target
    return (
        isinstance(operation, torch._ops.OpOverload)
        and operation.namespace == NAMESPACE
        and is_of_any_process(operation, node.args)
    )


def _is_of_library(function: Any) -> bool:
    module = getattr(function, "__module__", None) or getattr(getattr(function, "__objclass__", None), "__module__", "")
    if isinstance(function, torch._ops.OpOverload):
        return function.namespace == "aten"
    owner = getattr(function, "__self__", None)
    if module in ("", None) and owner is not None:
        module = getattr(owner, "__module__", None) or type(owner).__module__
    return str(module).partition(".")[0] in _ROOTS


def _written_global(value: Any) -> Any:
    place = place_of(value)
    if place is not None:
        return ["place", *place]
    try:
        return ["constant", plain_values.written(value)]
    except NotKept:
        pass
    raise NotKept(f"its graph refers to {value!r}")


class KeptGraph:
    """Stands for the graph module in a process that has none."""

    def __init__(self, record: list[Any]) -> None:
        self.code: str = record[0]
        self._globals: list[Any] = record[1]
        self._own_operations: list[str] = record[2]
        self.meta: dict[str, Any] = {}
        self.parts: list[KeptGraph] = []
        """The graphs that it was compiled in."""
        self._compiled: Callable[..., Any] | None = None

    def forward(self, *inputs: Any) -> Any:
        """The graph's operations, one after the other."""
        compiled = self._compiled
        if compiled is None:
            compiled = self._compiled = self._compile()
        return compiled(*inputs)

    def _compile(self) -> Callable[..., Any]:
        for name in self._own_operations:
            define(name)
        namespace = {name: _global(data) for name, data in self._globals}
        exec(compile(self.code, "<a graph that was kept>", "exec"), namespace)
        return functools.partial(namespace["forward"], self)


def _global(data: list[Any]) -> Any:
    kind, *rest = data
    if kind == "place":
        return find(rest)
    if kind == "constant":
        return plain_values.read(rest[0])
    raise DoesNotFit(f"there are no globals of the kind {kind!r}")
