"""Parameters made by captured code, and the modules that hold them: the graph makes the parameter, Python the module
around it."""
from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from framejit.backends.opaque_call import OpaqueCall
from framejit.signals import Unsupported
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.handlers import handles
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_NAMES = ("data", "requires_grad")


@handles(torch.nn.Parameter)
def _parameter(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    given = dict(zip(_NAMES, args)) | kwargs
    data, requires_grad = given.get("data"), given.get("requires_grad", ConstantValue(True))
    if len(args) + len(kwargs) != len(given) or not set(given) <= set(_NAMES):
        raise Unsupported("making a Parameter with other arguments than it has", "FJ113")
    if (
        not isinstance(data, TensorValue)
        or data.cls not in (torch.Tensor, torch.nn.Parameter)
        or requires_grad.python_type() is not bool
    ):
        raise Unsupported("making a Parameter of something else than a tensor", "FJ113")
    wanted = requires_grad.constant()
    if wanted and not (data.fake.is_floating_point() or data.fake.is_complex()):
        raise Unsupported("making a Parameter of integers that requires gradients", "FJ113")
    with frame.capture.graph.metadata.faking(), torch.no_grad():
        fake = data.fake.detach().requires_grad_(wanted)
    made = frame.capture.graph.add(
        OpaqueCall(torch.nn.Parameter, "parameter", "a parameter is made in it"), (data.node, wanted), fake
    )
    assert isinstance(made, TensorValue)
    made.cls = torch.nn.Parameter
    return made
