"""The key of a plan in the disk cache: a hash over the recorded graph, and over all else that what is made of it
depends on.

The key is taken of the recorded graph, not of the FX graph before it. What is recorded depends on every decomposition,
mode and switch of torch, which the operations themselves show (composite ones hold what they consist of) and no list of
switches could be trusted to. Passes, lowering and all that comes after are the same for graphs with the same key, so
that none of them is run for a plan that is found. Where weights are frozen, passes compute new weights: the key says
which are frozen and not what is in them, the plan how they are computed (`folding_record.py`).
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import torch

from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.plan_key import (
    ADDED,
    NotCacheable,
    PlanKey,
    SymbolicSizes,
    bytes_of,
    functions_of,
    surroundings,
)
from framejit.backends.fuse.graph.direct_convolution import blocked_weight
from framejit.backends.fuse.graph.folded_norm import folded_norm
from framejit.backends.fuse.graph.graph import Graph
from framejit.backends.fuse.graph.graph_text import GraphText
from framejit.backends.fuse.graph.known import is_computable
from framejit.backends.fuse.graph.packed_operations import packed_convolution_weight, packed_product_weight
from framejit.backends.fuse.graph.value import Value
from framejit.backends.fuse.targets.lookup import target_of

if TYPE_CHECKING:
    from framejit.backends.fuse.layers.shortened import Shortened


def plan_key(
    graph: Graph, text: GraphText, tracked: bool, weights: Mapping[int, torch.Tensor],
    sizes: SymbolicSizes | None = None, autotune: bool = False, same_random_numbers: bool = False,
    short: Shortened | None = None,
) -> PlanKey:
    """The key of what passes, `lower_graph(graph, tracked)` and the later stages give. `text` is the graph's; with
    `autotune` kernels are measured, with `same_random_numbers` all are drawn that eager draws; `short` is what the
    graph is recorded of, if that was shortened, and the plan is for the whole. Raises NotCacheable.

    Plans for symbolic sizes have the same key whatever the sizes are now: each holds for those that meet its own
    conditions.
    """
    if text.unwritten:
        raise NotCacheable(text.unwritten)
    lines = [text.key, *_constants(graph), *_foreign(text), f"frozen {sorted(weights)}", f"autotune {autotune}"]
    making = [str(device) for device in text.devices if target_of(device).makes_random_numbers]
    lines.append(f"random numbers made on {[] if same_random_numbers else sorted(making)}")
    if sizes is not None:
        lines += [
            f"symbol {symbol} from {symbol.bounds[0]} to {symbol.bounds[1]}" for symbol in sizes.symbols
        ] + sizes.conditions.granted()
    if short is not None:
        lines.append(short.told)
    machine, state = surroundings({*text.devices}, tracked)
    key = key_of(machine, "\n".join(lines), state)
    operations = {operation.name(): operation for operation in (*ADDED, *text.operations)}
    computing = {
        "folded_norm": folded_norm, "packed_convolution_weight": packed_convolution_weight,
        "packed_product_weight": packed_product_weight, "blocked_weight": blocked_weight,
        **{name: operation for name, operation in operations.items() if is_computable(operation)},
    }
    returns = tuple(isinstance(output, Value) for output in graph.outputs)
    if short is not None and short.units.outputs is not None:
        returns = tuple(type(place) is not int or returns[place] for place in short.units.outputs)
    tensors = tuple(constant.tensor for constant in graph.constants.values())
    return PlanKey(
        key, functions_of(text.operations), computing, tensors, weights,
        len(graph.inputs if short is None else short.units.names), returns, sizes, tuple(text.origins),
    )


def _constants(graph: Graph) -> Iterator[str]:
    """What the text does not tell of constants, in their order."""
    first: dict[int, int] = {}
    for number, constant in enumerate(graph.constants.values()):
        tensor = constant.tensor
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise NotCacheable(f"a constant is of type {type(tensor).__name__}")
        same = first.setdefault(id(tensor), number)
        content = (
            key_of("content", bytes_of(tensor))
            if constant.literal
            else f"{target_of(tensor.device).is_aligned and tensor.data_ptr() % 16 == 0}"
        )
        yield f"constant {same} {tensor.dtype} {tensor.device} {tuple(tensor.shape)} {tensor.stride()} {content}"


def _foreign(text: GraphText) -> Iterator[str]:
    """What the operations of libraries are; ATen's are told by torch's version."""
    for operation in text.operations:
        if not isinstance(operation, torch._ops.OpOverload):
            raise NotCacheable(f"{operation} is no operation of ATen's or of a library's")
        if operation.namespace != "aten":
            yield f"{operation._schema} {sorted(map(str, operation.tags))}"
