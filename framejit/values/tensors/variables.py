"""`torch.autograd.Variable(tensor)`, by which programs once said what gradients are wanted of: a tensor of its own over
the memory of the one given, without its history."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.autograd import Variable

from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import handles
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_NAMES = ("data", "requires_grad", "volatile", "_grad_fn", "name")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


@handles(Variable)
def _variable(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(_NAMES, args)) | kwargs
    data, no = given.get("data", NONE), ConstantValue(False)
    if not isinstance(data, TensorValue) or data.cls not in _PLAIN:
        raise Unsupported(f"making a Variable of {data.describe()}", "FJ113", "make a tensor")
    if not {"_grad_fn", "name"}.isdisjoint(given):
        raise Unsupported("making a Variable with a name or a history", "FJ113", "use the tensor as it is")
    wanted, volatile = (given.get(argument, no).constant() for argument in ("requires_grad", "volatile"))
    if not (isinstance(wanted, int) and isinstance(volatile, int)):
        raise Unsupported("making a Variable whose flags are no ints", "FJ112")
    if volatile:
        raise Unsupported("making a Variable that is volatile, of which torch warns", "FJ113", "use torch.no_grad()")
    # a node of its own, for the sizes of a Variable may be changed in place, those of what detach() gives may not
    made = frame.capture.graph.call(Variable, [data])
    if wanted:
        made.call_method(frame, "requires_grad_", [], {})
    return made


@handles(type(Variable).__instancecheck__)
def _is_variable(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Any tensor is one."""
    return ConstantValue(issubclass(args[1].python_type(), torch.Tensor))
