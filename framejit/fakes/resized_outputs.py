"""The strides of tensors that an operation is given for its results (`out=`).

They stay what they are, in eager, where the sizes do. Of one that an elementwise operation makes larger or smaller they
are those of the result that it would make, by the operands. Some of torch's rules in Python give the former the strides
of the result, and most make the latter contiguous.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from framejit.fakes.size_keys import size_keys
from framejit.fakes.stride_rules import Rule, elementwise_rule

Layout = tuple[tuple[Any, ...], tuple[Any, ...]]


@functools.cache
def _without_out(func: torch._ops.OpOverload) -> tuple[torch._ops.OpOverload, Rule] | None:
    """The overload of an operation that makes its result, and the rule for the strides of that."""
    wanted = [(argument.name, str(argument.type)) for argument in func._schema.arguments if not argument.is_out]
    for name in func.overloadpacket.overloads():
        other = getattr(func.overloadpacket, name)
        given = [(argument.name, str(argument.type)) for argument in other._schema.arguments]
        if given == wanted and not other._schema.is_mutable:
            rule = elementwise_rule(other)
            return None if rule is None else (other, rule)
    return None


def layouts_of_outputs(func: Any, kwargs: Mapping[str, Any]) -> list[tuple[torch.Tensor, Layout]]:
    """The tensors that an operation is given for its results, with their sizes and strides."""
    if not kwargs or type(func) is not torch._ops.OpOverload or not func._schema.is_mutable:
        return []
    given = [kwargs.get(argument.name) for argument in func._schema.arguments if argument.is_out]
    return [(out, (tuple(out.shape), out.stride())) for out in given if isinstance(out, torch.Tensor)]


def lay_out_again(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], outputs: Iterable[tuple[torch.Tensor, Layout]]
) -> None:
    """Give what an operation has put its results into the strides that it has in eager. `outputs`: as it was before."""
    for out, (sizes, strides) in outputs:
        if not out.dim() or out.layout != torch.strided:
            continue
        if size_keys(out.shape) == size_keys(sizes):  # as far as is known by now
            wanted: Any = strides
        else:
            found = _without_out(func)
            given = {name: value for name, value in kwargs.items() if value is not out}
            wanted = None if found is None else found[1](found[0], args, given, out)
        if wanted is not None and size_keys(wanted) != size_keys(out.stride()):
            out.as_strided_(out.shape, wanted)
