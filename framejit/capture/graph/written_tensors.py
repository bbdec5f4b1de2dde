"""Which tensors a node of a graph writes into, those also of which torch does not count it: by versions alone, the
statistics of a batch norm, what an optimizer's fused step changes and what tells a gradient scaler of infinities would
hold what they were made with."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import torch
from torch import fx

from framejit.fakes.arguments import tensors_in
from framejit.fakes.storages import storage_of

EXCHANGED: Final = "exchanged"
"""In the meta of a node that gives a tensor the memory of another: the storages of both before it, which live as long
as the node does."""
_NO_WRITES: Final = (operator.and_, operator.or_, operator.not_)
"""They are called as if they wrote in place, for their names would be keywords of Python's else."""
_NORMS: Final = frozenset(("batch_norm", "instance_norm", "native_batch_norm", "_batch_norm_impl_index"))


def written_by(node: fx.Node) -> list[torch.Tensor]:
    """The fakes an operation writes into."""
    # seen by the versions of the fakes; some operations don't count theirs
    found: list[torch.Tensor] = [*node.meta.get("written", ())]
    target = node.target
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        # Of a packet, which overload runs is not known here: what any of them writes may be written.
        overloads = (
            [target]
            if isinstance(target, torch._ops.OpOverload)
            else [getattr(target, name) for name in target.overloads()]
        )
        arguments = [(i, argument) for overload in overloads for i, argument in enumerate(overload._schema.arguments)]
        written = [
            (i, a.name)
            for i, a in arguments
            if a.alias_info is not None and a.alias_info.is_write and not (a.kwarg_only and a.name not in node.kwargs)
        ]
        args, kwargs = fakes_given(node) if written else ((), {})
        return found + [*tensors_in(args[i] if i < len(args) else kwargs.get(name) for i, name in written)]
    name = target if isinstance(target, str) else getattr(target, "__name__", "")
    if name == "requires_grad_" or target in _NO_WRITES:  # the former of a tensor that was made here
        return found
    in_place = name == "setitem" or (name.endswith("_") and not name.endswith("__"))
    by_schema = _written_by_schema(name)
    if not (in_place or by_schema or name in _NORMS or "out" in node.kwargs):
        return found
    args, kwargs = fakes_given(node)
    if name in _NORMS:
        return found + _running_statistics(target, args, kwargs)
    written_args = [args[i] if i < len(args) else kwargs.get(argument) for i, argument in by_schema]
    if in_place and not by_schema:
        written_args += args[:1]
    return found + [*tensors_in((*written_args, kwargs.get("out")))]


@cache
def _written_by_schema(name: str) -> tuple[tuple[int, str], ...]:
    """The positions and names of the arguments that an ATen operation of this name writes into, other than `out`. Which
    overload runs is not known here: what any of them writes may be written."""
    return tuple(
        {
            (position, argument.name): None
            for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
            # without kernels are operations of TorchScript on its own lists, as `sort` is
            if torch._C._dispatch_has_kernel(".".join(filter(None, (schema.name, schema.overload_name))))
            and not any(argument.is_out for argument in schema.arguments)
            for position, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        }
    )


def exchanged_memory(nodes: Iterable[fx.Node]) -> set[int]:
    """The storages that tensors were moved from or to. The fake of a tensor that has moved lies where it was moved to,
    also among what a node before took: what is written into one of these may be any of them."""
    return {storage._cdata for node in nodes for storage in node.meta.get(EXCHANGED, ())}


def memory_written_by(nodes: Sequence[fx.Node]) -> set[int]:
    """The storages that nodes may write into."""
    written = {storage_of(fake) for node in nodes for fake in written_by(node)}
    exchanged = exchanged_memory(nodes)
    return written if written.isdisjoint(exchanged) else written | exchanged


def _running_statistics(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """What a batch or instance norm of this call's own statistics notes them in."""
    in_python = getattr(target, "__module__", "") == "torch.nn.functional"
    first = 1 if in_python else 3
    own = (
        args[5]
        if len(args) > 5
        else kwargs.get("training", kwargs.get("use_input_stats", "instance" in target.__name__))
    )
    given = [
        args[position] if len(args) > position else kwargs.get(name)
        for position, name in ((first, "running_mean"), (first + 1, "running_var"))
    ]
    return [*tensors_in(given)] if own else []


def fakes_given(node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A node's arguments, with fakes in the place of nodes."""
    args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda argument: argument.meta.get("val"))
    return args, kwargs
