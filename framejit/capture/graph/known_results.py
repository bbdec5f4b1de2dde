"""What tensors hold that captured code makes of constants alone, as `torch.arange(1, x.dim())`: the same in each call,
so that numbers read from them are known while capturing."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import fx

from framejit.capture.graph.graph_writes import GraphWrites
from framejit.fakes.dropped_warnings import without_warnings
from framejit.fakes.operation_kinds import name_of

CONSTANT: Final = "constant"
"""Under which the nodes of inputs that are constants have their content."""
_MOST_NODES: Final = 64
_MOST_NUMBERS: Final = 4096
# operations that give the same for the same numbers, and leave no element as it was in memory
_OPERATIONS: Final = frozenset("""
    arange linspace logspace tensor as_tensor scalar_tensor zeros ones full eye zeros_like ones_like full_like
    new_zeros new_ones new_full tril_indices triu_indices
    add sub rsub subtract mul multiply div divide truediv true_divide floordiv floor_divide mod remainder fmod pow neg
    negative abs sign sqrt square exp log log2 log10 floor ceil round trunc clamp maximum minimum where
    eq ne lt le gt ge logical_and logical_or logical_not logical_xor and_ or_ xor invert bitwise_not
    reshape view flatten ravel unsqueeze squeeze expand permute t transpose cat concat stack unbind chunk split select
    narrow getitem flip roll repeat tile contiguous clone detach to type long int short float double bool diff
    sum prod mean cumsum cumprod max min amax amin argmax argmin all any sort argsort unique
""".split())


def known_result(node: fx.Node, writes: GraphWrites) -> torch.Tensor | None:
    """What a node gives in each call; None where that follows from more than constants, or was written into."""
    order = _made_of_constants(node, writes)
    if order is None:
        return None
    found: dict[fx.Node, Any] = {}
    with torch.no_grad(), without_warnings():
        for part in order:
            if CONSTANT in part.meta:
                found[part] = part.meta[CONSTANT]
                continue
            args = fx.node.map_arg(part.args, found.__getitem__)
            kwargs = fx.node.map_arg(part.kwargs, found.__getitem__)
            try:
                if part.op == "call_method":
                    found[part] = getattr(args[0], str(part.target))(*args[1:], **kwargs)
                else:
                    found[part] = part.target(*args, **kwargs)  # type: ignore[operator]
            except Exception:  # the graph raises it, in its place
                return None
            if not _is_as(found[part], part.meta["val"]):  # a default has changed between
                return None
    result = found[node]
    return result if isinstance(result, torch.Tensor) else None


def _made_of_constants(node: fx.Node, writes: GraphWrites) -> list[fx.Node] | None:
    """The nodes that a node's result follows from, itself the last, if there are no inputs among them."""
    order, waiting = dict[fx.Node, None](), [node]
    while waiting:
        part = waiting[-1]
        missing = [given for given in part.all_input_nodes if given not in order]
        if len(order) + len(waiting) > _MOST_NODES or not _is_operation(part) or not _is_small(part.meta, writes):
            return None
        if missing:
            waiting += missing
        else:
            order[waiting.pop()] = None
    return [*order]


def _is_operation(node: fx.Node) -> bool:
    if node.op == "placeholder":
        return CONSTANT in node.meta
    return node.op in ("call_function", "call_method") and name_of(node.target) in _OPERATIONS and "val" in node.meta


def _is_small(meta: dict[str, Any], writes: GraphWrites) -> bool:
    """Whether results are few numbers on the CPU that nothing has written into."""
    fakes = meta["val"] if isinstance(meta["val"], (tuple, list)) else [meta["val"]]
    return not meta.get("written") and all(
        isinstance(fake, torch.Tensor)
        and type(fake) is not torch.Tensor
        and fake.device.type == "cpu"
        and not fake.requires_grad
        and not fake._has_symbolic_sizes_strides
        and fake.numel() <= _MOST_NUMBERS
        and not writes.into(fake)
        for fake in fakes
    )


def _is_as(result: Any, fake: Any) -> bool:
    if not isinstance(result, torch.Tensor):
        return isinstance(fake, (tuple, list)) and len(fake) == len(result) and all(map(_is_as, result, fake))
    return isinstance(fake, torch.Tensor) and (result.shape, result.dtype, result.device) == (
        fake.shape, fake.dtype, fake.device,
    )
