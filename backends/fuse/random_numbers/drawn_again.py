"""Operations that ATen carries out, but for the random numbers, which are those that kernels make: for a graph that is
run again as ATen and has to give what its kernels gave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._python_dispatch import TorchDispatchMode

from framejit.backends.fuse.random_numbers.drawings import DRAWING, MAKING, Drawing, Gives, drawing_of, scale_of_dropout
from framejit.backends.fuse.random_numbers.operations import BERNOULLI, computed_in, draw_key
from framejit.backends.fuse.targets.lookup import target_of
from framejit.backends.opaque_call import CheckpointCall, OpaqueCall


class DrawnAgain(TorchDispatchMode):
    """While it is on, the draws of a graph, which have to come in their order, give what its kernels give: a key is
    drawn where the first of a device's stands."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[torch.device, torch.Tensor] = {}
        self.draws = 0
        """How many there were."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        found = _looks(func, args, kwargs)
        if found is not None and target_of(found[1]).makes_random_numbers:
            drawing = drawing_of(func, args, kwargs, found[0])
            if drawing is not None:
                return self._draw(drawing, args, *found)
        return func(*args, **kwargs)

    def _draw(self, drawing: Drawing, args: tuple[Any, ...], looks: torch.Tensor, device: torch.device) -> Any:
        dropped = drawing.gives in (Gives.LEFT, Gives.LEFT_AND_MASK)
        dtype = torch.bool if drawing.operation is BERNOULLI else looks.dtype
        if device not in self._keys:
            self._keys[device] = draw_key(device)
        given, named = drawing.arguments(self._keys[device], self.draws, looks.shape, looks.stride(), dtype)
        self.draws += 1
        numbers = drawing.operation(*given, **named)
        if drawing.gives is Gives.WRITTEN:
            return args[0].copy_(numbers)
        if not dropped:
            return numbers.to(looks.dtype)
        x, p = args[:2]
        left = (x * (numbers.to(computed_in(x.dtype)) * scale_of_dropout(p, x.dtype))).to(x.dtype)
        return left if drawing.gives is Gives.LEFT else (left, numbers)


def drawing_as_kernels(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The operations of a graph that needs no gradients, with the random numbers that kernels make."""

    def run(*inputs: torch.Tensor) -> Any:
        # below autograd composite operations arrive whole, as they were recorded
        with torch._C._AutoDispatchBelowAutograd(), DrawnAgain():
            return forward(*inputs)

    return run


def in_one_run(gm: fx.GraphModule) -> fx.GraphModule:
    """The graph with what its checkpoints consist of in their place. A checkpoint computes its part again when
    gradients are worked out, when nothing would say any more what was drawn."""
    if not any(isinstance(node.target, CheckpointCall) for node in gm.graph.nodes):
        return gm
    graph = fx.Graph()
    graph.output(graph.graph_copy(gm.graph, {}))
    for node in graph.nodes:
        if isinstance(node.target, CheckpointCall):
            node.target = OpaqueCall(in_one_run(node.target.module), "checkpointed", node.target.why)
    return fx.GraphModule(gm, graph)


def _looks(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[torch.Tensor, torch.device] | None:
    """What an operation that draws gives looks like, as a tensor without memory, and its device; None for others."""
    if func not in DRAWING:
        return None
    device = kwargs.get("device")
    if func in MAKING:
        made = torch.empty(args[0], dtype=kwargs.get("dtype"), device="meta")
        return made, _numbered(device or torch.get_default_device())
    memory_format = kwargs.get("memory_format") or torch.preserve_format
    made = torch.empty_like(args[0], dtype=kwargs.get("dtype"), device="meta", memory_format=memory_format)
    return made, _numbered(device or args[0].device)


def _numbered(device: torch.device) -> torch.device:
    """The device with its number."""
    return torch.device("cuda", torch.cuda.current_device()) if device == torch.device("cuda") else device
