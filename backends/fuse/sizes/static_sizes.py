"""A graph with symbolic sizes, as it would have been captured for inputs of certain sizes."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from framejit.backends.fuse.account.compiled_graph import SIZES
from framejit.backends.fuse.graph.entrances import Entrance
from framejit.backends.fuse.graph.record import attribute_of
from framejit.backends.fuse.not_fusable import NotFusable
from framejit.backends.fuse.thread_state import restored_thread_state
from framejit.backends.graph_identity import asked_of, identify, identity
from framejit.fakes.dropped_warnings import without_warnings
from framejit.fakes.fake_mode import Fakes
from framejit.fakes.light_torch import light


def of_sizes(gm: fx.GraphModule, inputs: list[torch.Tensor], sizes: tuple[int, ...]) -> fx.GraphModule:
    """The graph with fakes of the inputs' own sizes, and numbers in place of what it computes of sizes. `sizes` are
    those that the graph leaves open. Raises NotFusable where an operation raises for these sizes."""
    graph = fx.Graph()
    env: dict[fx.Node, Any] = {}
    values: dict[fx.Node, Any] = {}
    given = iter(inputs)
    with light(), restored_thread_state():
        mode = Fakes(allow_fallback_kernels=False)
        with mode, without_warnings():
            for node in gm.graph.nodes:
                value: Any = None
                if node.op == "placeholder":
                    value = _fake_like(next(given))
                elif node.op == "get_attr":
                    value = attribute_of(gm, str(node.target))
                    value = mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value
                elif node.op != "output":
                    try:
                        value = _run(node, values)
                    except Exception as e:  # eager's operation raises when the graph runs
                        raise NotFusable(f"{node.target} raises for these sizes: {type(e).__name__}: {e}") from e
                values[node] = value
                if isinstance(node.meta.get("val"), torch.SymInt):
                    env[node] = value  # no node: it is a number now
                    continue
                made = env[node] = graph.node_copy(node, env.__getitem__)
                if node.op != "output":
                    made.meta["val"] = made.meta["example_value"] = value
    made_module = fx.GraphModule(gm, graph)
    number = identity(gm)
    if number is not None:
        identify(made_module, number)
    made_module.meta[SIZES] = sizes
    made_module.meta |= asked_of(gm)
    return made_module


def _fake_like(tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        fake = torch.empty_strided(
            tuple(tensor.shape), tuple(tensor.stride()), dtype=tensor.dtype, device=tensor.device
        )
        fake = fake.conj() if tensor.is_conj() else fake
        fake = torch._neg_view(fake) if tensor.is_neg() else fake
    return Entrance.of(tensor).made(fake)


def _run(node: fx.Node, values: dict[fx.Node, Any]) -> Any:
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)
