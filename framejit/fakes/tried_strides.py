"""In which order an elementwise operation has its operands, as torch itself tells it.

Where operands lie in different orders, the first that can tell two dimensions apart decides (elementwise_strides.py),
and which is the first to a kernel, its schema does not say: `threshold_backward(grad, x)` goes by `x` first. So the
operation is tried on small tensors that lie in the same orders, once in a process for each combination of these. Sizes
that are left open stand in it with those at hand: the order is the kernel's, whatever they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from framejit import _native
from framejit.fakes.dropped_warnings import without_warnings

MOST_KNOWN: Final = 4096
MOST_DIMS: Final = 8

_known: dict[Any, tuple[list[Any], torch.Tensor] | None] = {}


def tried(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: torch.Tensor
) -> tuple[list[Any], torch.Tensor] | None:
    """Small arguments in place of an operation's, and what it gives for them. None where it is not tried, for it draws
    random numbers or works on many dimensions, or raised."""
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    numbers = [number for tensor in tensors for number in _at_hand((*tensor.shape, *tensor.stride()))]
    if result.dim() > MOST_DIMS or not all(_at_hand(result.shape)) or None in numbers:
        return None
    if torch.Tag.nondeterministic_seeded in func.tags:
        return None
    small = _Small(tensors)
    try:
        key = func, torch.get_default_dtype(), *map(small.described, args), *map(small.described, kwargs.items())
    except _OfNoUse:
        return None
    if key not in _known:
        if len(_known) > MOST_KNOWN:
            _known.clear()
        made = [small.made(value) for value in args]
        given = _tried(func, made, {name: small.made(value) for name, value in kwargs.items()})
        _known[key] = None if given is None or given.dim() != result.dim() else (made, given)
    return _known[key]


def _tried(func: torch._ops.OpOverload, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor | None:
    with (
        _disable_current_modes(), torch._C.DisableTorchFunctionSubclass(), torch._C._DisableAutocast(), torch.no_grad(),
        without_warnings(),
    ):
        try:
            result = _native.without_warnings(func, *args, **kwargs)
        except Exception:  # such small arguments may be none that it takes
            return None
    return result if isinstance(result, torch.Tensor) else None


class _OfNoUse(Exception):
    """An argument that can't be tried with."""


class _Small:
    """Tensors in the place of others, whose sizes and strides are to each other as theirs are."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        sizes = sorted({size for tensor in tensors for size in _at_hand(tensor.shape) if size > 1})
        self.sizes = {1: 1} | {size: place + 2 for place, size in enumerate(sizes)}

    def described(self, value: Any) -> Any:
        """What a trial depends on. Raises _OfNoUse."""
        if isinstance(value, torch.Tensor):
            return self._sizes(value), self._strides(value), value.dtype
        if isinstance(value, tuple):
            return tuple(map(self.described, value))
        if value is None or isinstance(value, (bool, int, float, complex, str, torch.dtype)):
            return type(value), repr(value)
        raise _OfNoUse

    def made(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        sizes, strides = self._sizes(value), self._strides(value)
        last = sum((size - 1) * step for size, step in zip(sizes, strides))
        return torch.ones(last + 1, dtype=value.dtype, device="cpu").as_strided(sizes, strides)

    def _sizes(self, tensor: torch.Tensor) -> tuple[int, ...]:
        return tuple(self.sizes[size] for size in _at_hand(tensor.shape))

    def _strides(self, tensor: torch.Tensor) -> tuple[int, ...]:
        strides = _at_hand(tensor.stride())
        steps = sorted({step for step in strides if step})
        places = {0: 0} | {step: place + 1 for place, step in enumerate(steps)}
        return tuple(places[step] for step in strides)


def _at_hand(numbers: Sequence[Any]) -> list[Any]:
    """Sizes or strides, without asking anything of those that are left open; None for what only data decides."""
    return [number.node.hint if isinstance(number, torch.SymInt) else number for number in numbers]
