"""Recurrent layers on fakes. Torch runs them step by step, some ten operations for each, which takes a minute for a few
hundred steps: what they give looks the same for few steps, but for one size, which may be left open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.autograd.graph import increment_version

from framejit.fakes.arguments import tensors_in
from framejit.fakes.data_sizes import is_of_data

STEPPED: Final = frozenset(("gru", "rnn_relu", "rnn_tanh"))
"""Those that torch has no one operation for below autograd."""
FEW: Final = 3
"""Steps that are run."""
BATCH_FIRST: Final = 8
"""The place of the argument that says where the steps are."""


def with_few_steps(function: Any, args: Sequence[Any], kwargs: Any) -> Any:
    """The results of a recurrent layer on fakes, found with few steps; None where it has few, or they may depend on how
    many there are in another way."""
    made = below_autograd(function, args, kwargs)
    given = [tensor for tensor in tensors_in(args) if tensor.requires_grad]
    return _Made.apply(made, *given) if made is not None and given and torch.is_grad_enabled() else made


def below_autograd(function: Any, args: Sequence[Any], kwargs: Any) -> tuple[torch.Tensor, ...] | None:
    """As `with_few_steps`, of which autograd sees nothing."""
    x = args[0] if args else None
    if kwargs or len(args) != BATCH_FIRST + 1 or not isinstance(x, torch.Tensor) or x.dim() != 3:
        return None
    steps = 1 if args[BATCH_FIRST] else 0
    length = x.shape[steps]
    if is_of_data(length) or length <= FEW:
        return None
    with torch.no_grad():
        fewer, few = (function(x.narrow(steps, 0, count), *args[1:]) for count in (FEW - 1, FEW))
        # sizes that are left open go by a rule in Python, which gives a view where torch's own code transposes in place
        by_rule = steps == 1 and few[0]._is_view() and x._has_symbolic_sizes_strides
        if fewer[0].stride() != few[0].stride() or any(made._is_view() for made in few[by_rule:]):
            return None
        shape = [length if dim == steps else size for dim, size in enumerate(few[0].shape)]
        out = torch.empty_strided(shape, few[0].stride(), dtype=few[0].dtype, device=few[0].device)
        for _ in range(1 if by_rule else few[0]._version):
            increment_version(out)
    return out, *few[1:]


class _Made(torch.autograd.Function):
    """Results that autograd takes for made of these tensors."""

    @staticmethod
    def forward(ctx: Any, made: tuple[torch.Tensor, ...], *given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.given = [tensor.detach() for tensor in given]
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return (None, *map(torch.empty_like, ctx.given))
