"""Questions about data whose other answer makes the program raise: the graph asserts the answer.

Where the assertion fails, the graph has changed nothing yet, and the call is made by plain Python, which raises what
the program raises (`capture/replacement/graph_failure.py`). On a GPU a failed assertion would end the process's use of
it, so that the graph breaks there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.handlers import handles
from framejit.values.sym_int import SizeQuestion
from framejit.values.tensors.override_state import has_override
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MESSAGE: Final = "the program raises for these data"


def can_be_asserted(value: Value) -> bool:
    """Whether it is a tensor with one element whose truth a graph can assert, or a comparison with a size that data
    decides."""
    if isinstance(value, SizeQuestion):
        return all(operand.python_type() is int for operand in value.operands)
    if not isinstance(value, TensorValue) or getattr(value.fake, "constant", None) is not None:
        return False
    fake = value.fake
    plain = (
        value.cls in (torch.Tensor, torch.nn.Parameter) and not has_override(value.cls) and fake.layout == torch.strided
    )
    return plain and fake.device.type == "cpu" and not fake._has_symbolic_sizes_strides and fake.numel() == 1


def assert_truth(frame: Frame, value: Value, expected: bool) -> None:
    """Have the graph raise unless `bool(value)` is what is expected."""
    graph = frame.capture.graph
    if isinstance(value, SizeQuestion):
        numbers = [
            graph.call(torch.scalar_tensor, [operand], {"dtype": ConstantValue(torch.int64)})
            for operand in value.operands
        ]
        value = graph.call(value.function, numbers)
    assert isinstance(value, TensorValue)
    holds: Value = value
    if value.fake.dtype != torch.bool or value.fake.dim():
        holds = graph.call(torch.any, [graph.call(torch.ne, [value, ConstantValue(0)])])
    if not expected:
        holds = graph.call(torch.logical_not, [holds])
    graph.call(torch._assert_async, [holds, ConstantValue(_MESSAGE)])


@handles(torch._assert)
def _assert(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """`torch._assert(condition, message)`."""
    given = dict(zip(("condition", "message"), args)) | kwargs
    condition = given["condition"]
    if can_be_asserted(condition):
        assert_truth(frame, condition, True)
    elif not frame.truth(condition):
        raise frame.raised(AssertionError, given["message"])
    return NONE


@handles(torch._check_tensor_all_with)
def _check_all(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """What `torch._check_tensor_all` and its like end in; None where their own code has something to say."""
    if not 2 <= len(args) <= 3 or kwargs or not isinstance(args[1], TensorValue) or args[1].fake.dtype != torch.bool:
        return None
    every = frame.capture.graph.call(torch.all, [args[1]])
    if not can_be_asserted(every):
        return None
    assert_truth(frame, every, True)
    return NONE
