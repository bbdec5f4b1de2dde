"""Attention masks that are full or causal by construction.

Libraries build them of positions when they see a compiler, and pass none otherwise; with a mask, torch has only slower
kernels. A mask that depends on no input is worked out here and compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import torch
from torch.utils._python_dispatch import _disable_current_modes

from framejit.backends.fuse.graph.graph import Constant
from framejit.backends.fuse.graph.known import is_computable
from framejit.backends.fuse.graph.node import Node, map_values, values_in
from framejit.backends.fuse.graph.value import Value

Kind = Literal["full", "causal"]
MOST_ELEMENTS: Final = 1 << 26
"""Larger masks are not looked at: 8192 positions against as many, or 64 rows of a batch with 1024."""
DEEPEST: Final = 64
"""How many operations a mask is made of at most."""


class Masks:
    """The masks of one graph. What was found of one is remembered: layers share it."""

    def __init__(self, constants: Mapping[Value, Constant]) -> None:
        self._constants = constants
        self._known: dict[Value, Kind | None] = {}

    def kind_of(self, mask: Value) -> Kind | None:
        """Whether a mask lets everything pass, or each position see itself and those before it; None for any other,
        and where that is not known."""
        if mask not in self._known:
            self._known[mask] = _kind_of(mask, self._constants)
        return self._known[mask]


def _kind_of(mask: Value, constants: Mapping[Value, Constant]) -> Kind | None:
    if mask.dim() < 2 or mask.has_symbolic_sizes or not 0 < mask.numel() <= MOST_ELEMENTS:
        return None
    with _disable_current_modes(), torch._C._DisableAutocast(), torch.no_grad():
        made = _worked_out(mask, constants)
        if made is None:
            return None
        for dim in range(made.dim() - 2):
            if made.stride(dim) == 0:
                made = made.narrow(dim, 0, 1)
        passes = _passes(made)
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


def _worked_out(mask: Value, constants: Mapping[Value, Constant]) -> torch.Tensor | None:
    """What a value is, on the CPU, if it is the same in each call."""
    nodes: dict[Node, None] = {}
    known: dict[Value, torch.Tensor] = {}
    waiting = [mask]
    while waiting:
        value = waiting.pop()
        maker = value.maker
        if value in constants and constants[value].literal:
            known[value] = constants[value].tensor.cpu()
        elif (
            maker is None
            or not is_computable(maker.operation)
            or maker.parts
            or maker.name.startswith(("empty", "new_empty"))
            or len(nodes) > DEEPEST
        ):
            return None
        elif maker not in nodes:
            nodes[maker] = None
            waiting += maker.values()
    try:
        while nodes:
            for node in [node for node in nodes if all(value in known for value in node.values())]:
                del nodes[node]
                result = node.operation(
                    *_here(node.args, known), **dict(zip(node.kwargs, _here(tuple(node.kwargs.values()), known)))
                )
                known.update(zip(values_in((node.result,)), result if isinstance(result, (tuple, list)) else (result,)))
    except Exception:  # it will raise in each call
        return None
    return known[mask]


def _here(args: tuple[Any, ...], known: Mapping[Value, torch.Tensor]) -> tuple[Any, ...]:
    """Arguments with tensors for values, and the CPU for devices."""
    return tuple(
        [torch.device("cpu") if isinstance(arg, torch.device) else map_values(arg, known.__getitem__) for arg in args]
    )


def without_mask(
    kind: Kind, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of `scaled_dot_product_attention` that say what a mask says."""
    named = dict(zip(("attn_mask", "dropout_p", "is_causal"), args[3:]), **kwargs)
    return args[:3], {**named, "attn_mask": None, "is_causal": kind == "causal"}
