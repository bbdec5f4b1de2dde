"""Attention masks that are full or causal by construction.

Libraries build them of positions when they see a compiler, and pass none otherwise; with a mask, torch has only slower
kernels. A mask that depends on no input is worked out here, with all that has been written into it, and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import torch
from torch.utils._python_dispatch import _disable_current_modes

from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.known import gives_the_same, is_computable, takes_sizes
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.value import Storage, Value

Kind = Literal["full", "causal"]
MASK: Final = 3  # the position of the mask among attention's arguments
MOST_ELEMENTS: Final = 1 << 26
"""Larger masks are not looked at: 8192 positions against as many, or 64 rows of a batch with 1024."""
DEEPEST: Final = 64
"""How many operations a mask is made of at most."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Masks:
    """The masks of a graph that is being recorded. What was found of one is remembered until something is written into
    it, or into what it is made of: layers share it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._seen = 0
        """How many of the graph's operations were looked at."""
        self._writers: dict[Storage, list[Node]] = {}
        self._known: dict[Value, tuple[Kind | None, Counter[Storage]]] = {}
        """By a mask its kind, and how often each storage had been written that it depends on."""

    def left_out(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], value_of: Callable[[torch.Tensor], Value]
    ) -> Arguments:
        """The arguments that `scaled_dot_product_attention` is to be called with on fakes, of which `value_of` gives
        the values: without a mask, where a flag says what it says."""
        mask = args[MASK] if len(args) > MASK else kwargs.get("attn_mask")
        kind = self.kind_of(value_of(mask)) if isinstance(mask, torch.Tensor) else None
        if kind is None:
            return args, kwargs
        named = dict(zip(("attn_mask", "dropout_p", "is_causal"), args[MASK:]), **kwargs)
        return args[:MASK], {**named, "attn_mask": None, "is_causal": kind == "causal"}

    def kind_of(self, mask: Value) -> Kind | None:
        """Whether a mask lets everything pass, or each position see itself and those before it; None for any other,
        and where that is not known."""
        for node in self._graph.nodes[self._seen :]:
            for storage in {value.storage for value in node.writes}:
                self._writers.setdefault(storage, []).append(node)
        self._seen = len(self._graph.nodes)
        kind, written = self._known.get(mask, (None, None))
        if written is None or any(len(self._writers.get(storage, ())) != count for storage, count in written.items()):
            kind = self._found(mask)
        return kind

    def _found(self, mask: Value) -> Kind | None:
        kind: Kind | None = None
        steps: dict[Node, None] | None = {}
        if mask.dim() >= 2 and not mask.has_symbolic_sizes and 0 < mask.numel() <= MOST_ELEMENTS:
            steps = self._steps(mask)
            if steps is not None:
                with _disable_current_modes(), torch._C._DisableAutocast(), torch.no_grad():
                    made = self._worked_out(mask, steps)
                    kind = None if made is None else _kind_of(made)
        values = (mask, *(value for node in steps or () for value in (*node.values(), *node.results)))
        self._known[mask] = kind, Counter(
            {value.storage: len(self._writers.get(value.storage, ())) for value in values}
        )
        return kind

    def _steps(self, mask: Value) -> dict[Node, None] | None:
        """The operations that a mask depends on, in no order: those that made it and wrote into it, or into what these
        read. None where it is not the same in each call."""
        steps: dict[Node, None] = {}
        seen: set[Value | Storage] = set()
        waiting = [mask]
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            makers = [] if value.maker is None else [value.maker]
            if value.maker is None and not self._is_literal(value):
                return None
            if value.storage not in seen:
                seen.add(value.storage)
                makers += self._writers.get(value.storage, ())
            for maker in makers:
                if not _is_computable(maker) or len(steps) > DEEPEST:
                    return None
                if maker not in steps:
                    steps[maker] = None
                    waiting += maker.values()
        return steps

    def _is_literal(self, value: Value) -> bool:
        return value in self._graph.constants and self._graph.constants[value].literal

    def _worked_out(self, mask: Value, steps: Mapping[Node, None]) -> torch.Tensor | None:
        """What a value is, on the CPU."""
        given = (value for node in steps for value in node.values())
        known = {
            value: self._graph.constants[value].tensor.detach().cpu().clone()
            for value in (mask, *given) if self._is_literal(value)
        }
        try:
            for node in (node for node in self._graph.nodes if node in steps):
                result = node.operation(
                    *_here(node.args, known), **dict(zip(node.kwargs, _here(tuple(node.kwargs.values()), known)))
                )
                known.update(zip(values_in((node.result,)), result if isinstance(result, (tuple, list)) else (result,)))
            return known[mask]
        except Exception:  # it will raise in each call
            return None


def _is_computable(node: Node) -> bool:
    """Whether an operation, and all that it consists of, does the same each time to the same tensors. A number that is
    left open may be another in the next call, though the sizes of all tensors are known."""
    return (
        gives_the_same(node.operation)
        and not node.name.startswith(("empty", "new_empty"))
        and not takes_sizes((*node.args, *node.kwargs.values()))
        and all(is_computable(inner.operation) for part in node.parts for inner in part.nodes)
    )


def _kind_of(mask: torch.Tensor) -> Kind | None:
    for dim in range(mask.dim() - 2):
        if mask.stride(dim) == 0:
            mask = mask.narrow(dim, 0, 1)
    passes = _passes(mask)
    if passes is None:
        return None
    if bool(passes.all()):
        return "full"
    # libraries that tell packed sequences apart by positions make a mask for each row of a batch
    causal = torch.ones(passes.shape[-2:], dtype=torch.bool).tril()
    return "causal" if bool((passes == causal).all()) else None


def _passes(mask: torch.Tensor) -> torch.Tensor | None:
    """Where a mask lets something pass; None if it does anything else to the rest than to leave it out."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        return None
    passes = mask == 0
    return passes if bool((passes | (mask <= torch.finfo(mask.dtype).min)).all()) else None


def _here(args: tuple[Any, ...], known: Mapping[Value, torch.Tensor]) -> tuple[Any, ...]:
    """Arguments with tensors for values, and the CPU for devices."""
    return tuple(
        [torch.device("cpu") if isinstance(arg, torch.device) else map_values(arg, known.__getitem__) for arg in args]
    )
