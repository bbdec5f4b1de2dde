"""Operations that captured code does under a default dtype other than the one its graph begins with: plans, which
lower and run all operations under that one, need the dtype written down."""

from __future__ import annotations

from typing import Any, Final

import torch

from framejit.backends.fuse.not_fusable import NotFusable
from framejit.fakes.arguments import tensors_in

_INEXACT: Final = (float, complex, torch.SymFloat)


def with_dtype(func: torch._ops.OpOverload, args: Any, kwargs: dict[str, Any], result: Any) -> dict[str, Any]:
    """The keyword arguments of an operation with the dtype that the default one made of its result. Raises NotFusable
    where the operation asks for the default dtype and can't be told another."""
    inputs = [*tensors_in((*args, *kwargs.values()))]
    if any(_is_inexact(tensor) for tensor in inputs):
        return kwargs  # next to such a tensor numbers and integers have no say
    named = [argument.name for argument in func._schema.arguments]
    if "dtype" in named:
        position = named.index("dtype")
        if kwargs.get("dtype") is None and (position >= len(args) or args[position] is None):
            if position < len(args) or not isinstance(result, torch.Tensor):
                raise _asks(func)
            return {**kwargs, "dtype": result.dtype}
        return kwargs
    numbers = [number for arg in (*args, *kwargs.values()) for number in (arg if isinstance(arg, list) else [arg])]
    if any(_is_inexact(made) for made in tensors_in((result,))) or any(isinstance(n, _INEXACT) for n in numbers):
        raise _asks(func)
    return kwargs


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _asks(func: torch._ops.OpOverload) -> NotFusable:
    return NotFusable(f"{func.name()} depends on the default dtype, which the program has changed")
