"""What `Module.to()`, `.float()` and the like ask of torch before they convert parameters.

Where nothing is to be converted, nothing is left of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.folding import fold
from framejit.values.handlers import handles
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_ALIKE: Final = ("cpu", "cuda")
"""Devices whose tensors may take each other's memory."""


@handles(torch._C._nn._parse_to)
def _parse(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """The device, dtype and so on that are asked for. Of a tensor it is the tensor's own."""
    if not args or not isinstance(args[0], TensorValue):
        return fold(frame, torch._C._nn._parse_to, args, kwargs)
    device, dtype = (ConstantValue(fact) for fact in (args[0].fake.device, args[0].fake.dtype))
    return TupleValue([device, dtype, ConstantValue(False), NONE]) if len(args) == 1 and not kwargs else None


@handles(torch._has_compatible_shallow_copy_type)
def _may_take_memory(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """Whether a tensor may take another's memory; known here of dense ones."""
    known = len(args) == 2 and not kwargs and all(
        isinstance(value, TensorValue)
        and value.cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.fake.layout is torch.strided
        and value.fake.device.type in _ALIKE
        for value in args
    )
    return ConstantValue(True) if known else None
