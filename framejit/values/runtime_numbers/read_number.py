"""`float(tensor)`, `int(tensor)` and `tensor.item()`: a Python number that nobody knows before the graph runs, as a
tensor without dimensions.

Arithmetic with it stays in the graph: of floats in float64, which is what Python computes in; of ints in int64, with
bounds that show that nothing overflows, or else a number that the graph asserts to be small. Results are handed out as
Python's. Whatever else asks for the number starts the capture again, and breaks the graph where the tensor is read.
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

    from framejit.values.context import Capture, Codegen, Frame


_ARITHMETIC: Final = frozenset((operator.add, operator.sub, operator.mul, operator.truediv, operator.pow))
_OF_INTS: Final = frozenset((operator.floordiv, operator.mod))
_UNARY: Final = frozenset((operator.neg, operator.pos, abs))
_INT_BOUNDS: Final = {
    torch.bool: (0, 1), torch.uint8: (0, 2**8 - 1), torch.int8: (-(2**7), 2**7 - 1), torch.int16: (-(2**15), 2**15 - 1),
    torch.int32: (-(2**31), 2**31 - 1), torch.int64: (-(2**63), 2**63 - 1),
}
"""What the ints of a dtype lie between."""
_DTYPES: Final[dict[type, torch.dtype]] = {float: torch.float64, int: torch.int64, bool: torch.bool}
_MESSAGE: Final = "a number read from a tensor is 0 as a divisor, or too large for int64"
_SMALL: Final = 2**31
"""What an int is asserted to be below before it is computed with, where its dtype holds greater ones."""
_COMPUTE_WITH_NUMBERS: Final = frozenset("""
    add sub mul div true_divide pow float_power clamp clamp_min clamp_max fill lerp addcmul addcdiv batch_norm
""".split())
"""Operations that only compute with the floats they are given: none of them decides about shapes or dtypes, and none is
refused."""
_DIVISIONS: Final = frozenset((operator.truediv, operator.itruediv))
_STAND_IN: Final = 0.5
"""The number that fakes of such operations are made with."""


class ReadNumberValue(Value):
    """A number read from a tensor by step `seq` of the capture.

    `tensor` is a copy of the number, without dimensions: of a float in float64, of an int in int64, of a bool in bool.
    `refusal` is why the graph breaks where the number must be known. `bounds`: what it surely lies between.
    `is_argument`: whether operations that take nothing but a number get one, which the graph reads: backends can't fuse
    such a graph, and otherwise it breaks in two that they can.
    """

    built_once = True

    def __init__(
        self, capture: Capture, tensor: TensorValue, seq: int, refusal: Unsupported,
        bounds: tuple[float, float] = (-math.inf, math.inf), is_argument: bool = True
    ) -> None:
        self.capture, self.tensor, self.seq, self.refusal = capture, tensor, seq, refusal
        self.bounds, self.is_argument = bounds, is_argument
        self.cls = next(cls for cls, dtype in _DTYPES.items() if dtype is tensor.fake.dtype)
        self.one_of_each = self.cls is not float
        self.small: fx.Node | None = None  # that it is below _SMALL, which is asserted
        self._read: fx.Node | None = None

    def python_type(self) -> type:
        return self.cls

    def describe(self) -> str:
        return f"{self.cls.__name__} read from a tensor"

    def children(self) -> Iterator[Value]:
        return iter((self.tensor,))

    def must_be_known(self) -> Any:
        self.capture.break_at(self.seq, self.refusal)

    def known_content(self, frame: Frame) -> Any:
        return self.must_be_known()

    def proxy(self) -> Any:
        return self.must_be_known()

    def truth(self, frame: Frame) -> bool:
        return bool(self.must_be_known())

    def call_method(self, frame: Frame, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        wanted = {"__float__": float, "__int__": int}.get(name)
        if not args and wanted is self.cls:
            return self
        if not args and wanted is not None and self.cls is not float:
            made = self.in_dtype(_DTYPES[wanted])
            assert isinstance(made, TensorValue)
            return self.like(made, self.bounds)
        found: Value = self.must_be_known()
        return found

    def like(self, tensor: TensorValue, bounds: tuple[float, float]) -> ReadNumberValue:
        """A number that was computed from this one."""
        return ReadNumberValue(self.capture, tensor, self.seq, self.refusal, bounds, self.is_argument)

    def argument_of(self, target: Any) -> Any:
        """The number as an argument of an operation: read where the graph runs."""
        if operation_name(target) not in _COMPUTE_WITH_NUMBERS or not self.is_argument or self.cls is not float:
            self.must_be_known()
        if not _is_there(self._read):
            self._read = self.capture.graph.number_in(self.tensor, _STAND_IN)
        return self._read

    def beside(self, function: Callable[..., Any], tensor: TensorValue) -> Value:
        """The operand that `function(tensor, number)` is given in place of the number: a tensor where that gives equal
        results (`SymNumberValue.as_tensor` says where), so that the operation can be fused."""
        dtype, fake = tensor.fake.dtype, tensor.fake
        if (
            function not in ELEMENTWISE
            or self.cls is bool
            or dtype not in (torch.float32, torch.float64)
            and (dtype is not torch.int64 or self.cls is float or function in _DIVISIONS)
            or fake.device != self.tensor.fake.device
        ):
            return self
        if tensor.cls not in (torch.Tensor, torch.nn.Parameter):
            return self
        return self.in_dtype(dtype)

    def in_dtype(self, dtype: torch.dtype) -> Value:
        """The number as a tensor without dimensions."""
        if dtype is self.tensor.fake.dtype:
            return self.tensor
        return self.capture.graph.call("to", [self.tensor, ConstantValue(dtype)], is_method=True)

    def reconstruct(self, cg: Codegen) -> None:
        cg.em.call_object(torch.Tensor.item, lambda: cg.load(self.tensor))


def read_float(
    frame: Frame, tensor: TensorValue, bounds: tuple[float, float] = (-math.inf, math.inf)
) -> Value | None:
    """`float(tensor)`; None where a graph can't read it, and with a gradient (torch warns)."""
    return None if tensor.fake.requires_grad else read_number(frame, tensor, float, "float()", bounds)


def read_item(frame: Frame, tensor: TensorValue) -> Value | None:
    """`tensor.item()`; None where a graph can't read it."""
    dtype = tensor.fake.dtype
    cls = float if dtype.is_floating_point else bool if dtype is torch.bool else int
    return read_number(frame, tensor, cls, ".item()", _INT_BOUNDS.get(dtype, (-math.inf, math.inf)))


def read_int(frame: Frame, tensor: TensorValue) -> Value | None:
    """`int(tensor)` of a tensor of ints or bools; None for others, and where a graph can't read it."""
    bounds = _INT_BOUNDS.get(tensor.fake.dtype)
    return None if bounds is None else read_number(frame, tensor, int, "int()", bounds)


def read_number(
    frame: Frame, tensor: TensorValue, cls: type, asked_by: str, bounds: tuple[float, float]
) -> Value | None:
    """The number in a tensor, as `cls`; None where a graph can't read it: of a program's class, of more than one
    element (torch refuses), of a dtype whose numbers `cls` can't hold."""
    fake = tensor.fake
    if tensor.cls not in (torch.Tensor, torch.nn.Buffer, torch.nn.Parameter) or fake.is_complex():
        return None
    if fake.is_inference() or fake.device.type not in ("cpu", "cuda") or fake.layout != torch.strided:
        return None
    if cls is not float and fake.dtype not in _INT_BOUNDS:
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
    copied = graph.call("to", [number, ConstantValue(_DTYPES[cls])], {"copy": ConstantValue(True)}, is_method=True)
    assert isinstance(copied, TensorValue)
    hint = "keep the number as a tensor, or compute it outside the compiled function"
    refusal = Unsupported(f"{asked_by} of a tensor needs its data", "FJ101", hint)
    is_argument = asked_by == "float()" or graph.metadata.data_sizes is not None
    return ReadNumberValue(frame.capture, copied, frame.seq, refusal, bounds, is_argument)


def compute(frame: Frame, function: Callable[..., Any], *operands: Value) -> Value | None:
    """`function` of numbers of which one was read from a tensor; None where it was not, or the other operand is a
    tensor."""
    read = next((value for value in operands if isinstance(value, ReadNumberValue)), None)
    if read is None or any(isinstance(value, TensorValue) for value in operands):
        return None
    if function not in _ARITHMETIC and function not in _UNARY and function not in _OF_INTS:
        return None
    classes = [_class_of(value, read) for value in operands]
    if None in classes:
        read.must_be_known()
    if all(cls is int for cls in classes):
        return _compute_ints(frame, function, read, operands)
    if function in _OF_INTS:
        read.must_be_known()
    return _compute_floats(frame, function, read, operands)


def compare_numbers(frame: Frame, function: Callable[..., Any], a: Value, b: Value) -> Value | None:
    """A comparison of numbers of which one was read from a tensor; None where it was not, or the other is a tensor."""
    read = a if isinstance(a, ReadNumberValue) else b
    if not isinstance(read, ReadNumberValue) or isinstance(a, TensorValue) or isinstance(b, TensorValue):
        return None
    classes = [_class_of(value, read) for value in (a, b)]
    if None in classes:
        read.must_be_known()
    if classes == [int, int]:
        numbers = [_as_int(value) for value in (a, b)]
    else:
        for value in (a, b):
            _narrow(frame, value)
        numbers = [_as_float(value) for value in (a, b)]
    made = frame.capture.graph.call(function, numbers)
    assert isinstance(made, TensorValue)
    return read.like(made, (0, 1))


def _class_of(value: Value, read: ReadNumberValue) -> type | None:
    """As what the graph can compute with an operand beside `read`: float or int, which bools are, too; None where it
    can't."""
    device = read.tensor.fake.device
    if isinstance(value, ReadNumberValue) and value.tensor.fake.device == device:
        return float if value.cls is float else int
    if isinstance(value, ConstantValue) and type(value.value) in (int, float) and abs(value.value) <= _LARGEST_EXACT:
        return type(value.value)
    if isinstance(value, SymNumberValue) and type(value.value) is float and device.type == "cpu":
        return float
    return None


def _compute_floats(
    frame: Frame, function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]
) -> Value:
    numbers = [_as_float(value) for value in operands]
    limits = [_bounds(value) for value in operands]
    if function is operator.truediv and not limits[1][0] > _SURELY_POSITIVE:
        _check_divisor(frame, read, numbers[1])
    if function is operator.pow and not _is_plain_power(*limits):
        read.must_be_known()
    graph = frame.capture.graph
    if function is operator.truediv:  # by a number torch multiplies with the inverse, and of a number it takes that
        beside = read.in_dtype(torch.float64)
        numbers = [
            number if isinstance(number, TensorValue) else graph.call(torch.full_like, [beside, number])
            for number in numbers
        ]
    made = graph.call(torch.clone if function is operator.pos else function, numbers)
    assert isinstance(made, TensorValue)
    return read.like(made, _bounds_of(function, limits))


def _as_float(value: Value) -> Value:
    """A number as what stands for it in arithmetic with floats."""
    if not isinstance(value, (ReadNumberValue, SymNumberValue)):
        return ConstantValue(float(value.constant()))
    number = value.in_dtype(torch.float64)
    assert number is not None
    return number


def _as_int(value: Value) -> Value:
    return value.in_dtype(torch.int64) if isinstance(value, ReadNumberValue) else value


def _compute_ints(
    frame: Frame, function: Callable[..., Any], read: ReadNumberValue, operands: Sequence[Value]
) -> Value:
    """Python's ints don't overflow, and int64 must not either."""
    limits = [_narrow(frame, value) for value in operands]
    if function is operator.truediv:  # exact ints that a double holds give the double that is nearest to the quotient
        return _compute_floats(frame, function, read, operands)
    if function in _OF_INTS:
        if not isinstance(operands[1], ConstantValue) or not operands[1].value:
            read.must_be_known()
    corners = _corners(function, limits)
    if corners is None or not all(abs(corner) < 2**63 for corner in corners):
        read.must_be_known()
    assert corners is not None
    numbers = [_as_int(value) for value in operands]
    made = frame.capture.graph.call(torch.clone if function is operator.pos else function, numbers)
    assert isinstance(made, TensorValue)
    return read.like(made, (min(corners), max(corners)))


def _narrow(frame: Frame, value: Value) -> tuple[float, float]:
    """The bounds of an int; where it could be any of int64, the graph asserts that it is small. Where it is not, the
    call goes on in plain Python."""
    if not isinstance(value, ReadNumberValue) or value.cls is not int or max(map(abs, value.bounds)) <= _LARGEST_EXACT:
        return _bounds(value)
    graph = frame.capture.graph
    if not _is_there(value.small):
        low = graph.call(torch.gt, [value.tensor, ConstantValue(-_SMALL)])
        high = graph.call(torch.lt, [value.tensor, ConstantValue(_SMALL)])
        small = graph.call(torch.logical_and, [low, high])
        assert isinstance(small, TensorValue)
        _assert_all(frame, value, small)
        value.small = small.node
    return 1 - _SMALL, _SMALL - 1


def _is_there(node: fx.Node | None) -> bool:
    """Whether a node is still in the graph: those of a function that became a graph of its own (a branch of torch.cond,
    the body of a loop) were taken out, and need not run."""
    return node is not None and not node._erased


def _assert_all(frame: Frame, read: ReadNumberValue, condition: Value) -> None:
    """Have the graph raise unless a condition on a number holds. On a GPU a failed assertion would end the process's
    use of it, so that the graph breaks where the number is read."""
    if read.tensor.fake.device.type != "cpu":
        read.must_be_known()
    check_all(frame, condition, message=_MESSAGE)


def _corners(function: Callable[..., Any], limits: Sequence[tuple[float, float]]) -> list[int] | None:
    """Ints among which are the least and the greatest that a function of ints within limits gives; None for functions
    that are not followed."""
    first = [int(end) for end in limits[0]]
    if function is abs:
        return [0, *map(abs, first)]
    if len(limits) == 1:
        return [function(end) for end in first]
    second = [int(end) for end in limits[1]]
    if function is operator.mod:
        return [0, second[0] - 1 if second[0] > 0 else second[0] + 1]
    if function is operator.pow:
        return None
    return [function(a, b) for a in first for b in second]


_SURELY_POSITIVE: Final = 1e-9
"""More than what rounding comes to."""


def _bounds(value: Value) -> tuple[float, float]:
    if isinstance(value, ReadNumberValue):
        return value.bounds
    if isinstance(value, ConstantValue):
        return value.value, value.value
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


def _check_divisor(frame: Frame, read: ReadNumberValue, divisor: Value) -> None:
    """Have the graph raise where Python does: the call goes on in plain Python then."""
    if isinstance(divisor, TensorValue):
        _assert_all(frame, read, frame.capture.graph.call(torch.ne, [divisor, ConstantValue(0.0)]))
    elif not divisor.constant():
        raise frame.raised(ZeroDivisionError, "division by zero")
