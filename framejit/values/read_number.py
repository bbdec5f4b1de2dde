"""`float(tensor)` and, of a tensor of floats, `tensor.item()`: a Python number that nobody knows before the graph runs,
as a tensor without dimensions.

Arithmetic with it stays in the graph, in float64, which is what Python computes in; results are handed out as Python's.
Whatever else asks for the number starts the capture again, and breaks the graph where the tensor is read.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.backends.may_raise import operation_name
from framejit.signals import Unsupported
from framejit.values.arrays.float_errors import check_all
from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.sym_number import ELEMENTWISE, SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from torch import fx

    from framejit.values.context import Codegen, Frame


_ARITHMETIC: Final = frozenset((operator.add, operator.sub, operator.mul, operator.truediv, operator.pow))
_UNARY: Final = frozenset((operator.neg, operator.pos, abs))
_COMPUTE_WITH_NUMBERS: Final = frozenset("""
    add sub mul div true_divide pow float_power clamp clamp_min clamp_max fill lerp addcmul addcdiv batch_norm
""".split())
"""Operations that only compute with the floats they are given: none of them decides about shapes or dtypes, and none is
refused."""
_STAND_IN: Final = 0.5
"""The number that fakes of such operations are made with."""


class ReadNumberValue(Value):
    """A float read from a tensor by step `seq` of the capture.

    `tensor` is a copy of the number in float64; `refusal` is why the graph breaks where the number must be known.
    `bounds`: what it surely lies between. `is_argument`: whether operations that take nothing but a number get
    one, which the graph reads: backends can't fuse such a graph, and otherwise it breaks in two that they can.
    """

    built_once = True

    def __init__(
        self, frame: Frame, tensor: TensorValue, seq: int, refusal: Unsupported,
        bounds: tuple[float, float] = (-math.inf, math.inf), is_argument: bool = True
    ) -> None:
        self.capture, self.tensor, self.seq, self.refusal = frame.capture, tensor, seq, refusal
        self.bounds, self.is_argument = bounds, is_argument
        self._read: fx.Node | None = None

    def python_type(self) -> type:
        return float

    def describe(self) -> str:
        return "float read from a tensor"

    def children(self) -> Iterator[Value]:
        return iter((self.tensor,))

    def must_be_known(self) -> Any:
        self.capture.break_at(self.seq, self.refusal)

    def proxy(self) -> Any:
        return self.must_be_known()

    def truth(self, frame: Frame) -> bool:
        return bool(self.must_be_known())

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if name == "__float__" and not args:
            return self
        found: Value = self.must_be_known()
        return found

    def argument_of(self, target: Any) -> Any:
        """The number as an argument of an operation: read where the graph runs."""
        if operation_name(target) not in _COMPUTE_WITH_NUMBERS or not self.is_argument:
            self.must_be_known()
        if self._read is None or self._read.graph is not self.capture.graph.graph:
            self._read = self.capture.graph.number_in(self.tensor, _STAND_IN)
        return self._read

    def beside(self, function: Callable[..., Any], tensor: TensorValue) -> Value:
        """What stands for the number in `function(tensor, number)`: a tensor where that gives the same
        (SymNumberValue.as_tensor), so that it can be fused."""
        dtype, fake = tensor.fake.dtype, tensor.fake
        if (
            function not in ELEMENTWISE
            or dtype not in (torch.float32, torch.float64)
            or fake.device != self.tensor.fake.device
        ):
            return self
        if tensor.cls not in (torch.Tensor, torch.nn.Parameter):
            return self
        return self.in_dtype(dtype)

    def in_dtype(self, dtype: torch.dtype) -> Value:
        """The number as a tensor without dimensions."""
        if dtype is torch.float64:
            return self.tensor
        return self.capture.graph.call("to", [self.tensor, ConstantValue(dtype)], is_method=True)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(torch.Tensor.item, lambda: cg.load(self.tensor))


def read_float(
    frame: Frame, tensor: TensorValue, bounds: tuple[float, float] = (-math.inf, math.inf), asked_by: str = "float()"
) -> Value | None:
    """`float(tensor)` or `tensor.item()`; None where a graph can't read it: of a program's class, of more than one
    element (torch refuses), and for `float()` with a gradient (torch warns)."""
    fake = tensor.fake
    warns = fake.requires_grad and asked_by == "float()"
    if tensor.cls not in (torch.Tensor, torch.nn.Buffer, torch.nn.Parameter) or warns or fake.is_complex():
        return None
    if fake.is_inference() or fake.device.type not in ("cpu", "cuda"):
        return None
    if (
        fake._has_symbolic_sizes_strides
        or fake.numel() != 1
        or frame.capture.transforms
        or getattr(fake, "constant", None) is not None
    ):
        return None
    graph = frame.capture.graph
    if fake.requires_grad:
        detached = graph.call("detach", [tensor], is_method=True)
        assert isinstance(detached, TensorValue)
        tensor = detached
    number = graph.call("reshape", [tensor, ConstantValue(())], is_method=True) if fake.dim() else tensor
    copied = graph.call("to", [number, ConstantValue(torch.float64)], {"copy": ConstantValue(True)}, is_method=True)
    assert isinstance(copied, TensorValue)
    refusal = Unsupported(f"{asked_by} of a tensor needs its data", "FJ101", "keep the number as a tensor")
    is_argument = asked_by == "float()" or graph.metadata.data_sizes is not None
    return ReadNumberValue(frame, copied, frame.seq, refusal, bounds, is_argument)


def compute(frame: Frame, function: Callable[..., Any], *operands: Value) -> Value | None:
    """`function` of numbers of which one was read from a tensor; None where it was not, or the other operand is a
    tensor."""
    read = next((value for value in operands if isinstance(value, ReadNumberValue)), None)
    if read is None or any(isinstance(value, TensorValue) for value in operands):
        return None
    if function not in _ARITHMETIC and function not in _UNARY:
        return None
    numbers: list[Value] = []
    for value in operands:
        if isinstance(value, ReadNumberValue) and value.tensor.fake.device == read.tensor.fake.device:
            numbers.append(value.tensor)
        elif (
            isinstance(value, ConstantValue)
            and type(value.value) in (int, float)
            and abs(value.value) <= _LARGEST_EXACT
        ):
            numbers.append(ConstantValue(float(value.value)))
        elif isinstance(value, SymNumberValue) and type(value.value) is float and read.tensor.fake.device.type == "cpu":
            number = value.in_dtype(torch.float64)
            assert number is not None
            numbers.append(number)
        else:
            read.must_be_known()
    limits = [_bounds(value) for value in operands]
    if function is operator.truediv and not limits[1][0] > _SURELY_POSITIVE:
        _check_divisor(frame, numbers[1])
    if function is operator.pow and not _is_plain_power(*limits):
        read.must_be_known()
    made = frame.capture.graph.call(torch.clone if function is operator.pos else function, numbers)
    assert isinstance(made, TensorValue)
    return ReadNumberValue(frame, made, read.seq, read.refusal, _bounds_of(function, limits), read.is_argument)


_SURELY_POSITIVE: Final = 1e-9
"""More than what rounding comes to."""


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, ReadNumberValue):
        return value.bounds
    if isinstance(value, ConstantValue):
        return float(value.value), float(value.value)
    return -math.inf, math.inf


def _is_plain_power(base: tuple[float, float], exponent: tuple[float, float]) -> bool:
    """Whether a power is surely a float, and none that Python raises for: of numbers from 0 to 1."""
    return 0 <= base[0] <= base[1] <= 1 and exponent[0] >= 0


def _bounds_of(function: Callable[..., Any], of: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """What a result surely lies between, but for rounding."""
    if function is operator.pow:
        (low, high), (least, most) = of
        return low**most, high**least
    if function is operator.sub:
        (low, high), (least, most) = of
        return low - most, high - least
    return -math.inf, math.inf


_LARGEST_EXACT: Final = 2**53


def _check_divisor(frame: Frame, divisor: Value) -> None:
    """Have the graph raise where Python does: the call goes on in plain Python then."""
    if isinstance(divisor, TensorValue):
        check_all(frame, frame.capture.graph.call(torch.ne, [divisor, ConstantValue(0.0)]))
    elif not divisor.constant():
        raise frame.raised(ZeroDivisionError, "float division by zero")
