"""Numpy's elementwise functions on arrays in graphs. Which dtypes a function computes in and gives is asked of numpy
itself."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from framejit.fakes.elementwise_strides import contiguous
from framejit.late_dataclass import dataclass
from framejit.values.arrays.array_memory import torch_dtype
from framejit.values.arrays.float_errors import check_all, check_finite
from framejit.values.arrays.ndarray import ArrayValue, NumberValue, NumpyValue, refused
from framejit.values.base import Value, realize
from framejit.values.constant import ConstantValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

Maker = Callable[["Frame", Sequence[Value]], Value]


@dataclass(frozen=True)
class Elementwise:
    """How a graph does what a ufunc does.

    `kinds` are those of the loops that it is right for (bool, unsigned, int, float). `warns`: numpy may warn of its
    floats. `spreads`: an inf or nan among its operands is one in its result. `by_number`: the second operand may be a
    number as it is.
    """

    make: Maker
    kinds: str
    warns: bool = True
    spreads: bool = False
    by_number: bool = False


def _torch(function: Callable[..., Any]) -> Maker:
    return lambda frame, operands: frame.capture.graph.call(function, list(operands))


def _remainder(frame: Frame, operands: Sequence[Value]) -> Value:
    """Where nothing remains, numpy gives the zero of the divisor's sign."""
    graph = frame.capture.graph
    rest = graph.call(torch.remainder, list(operands))
    if not isinstance(rest, TensorValue) or not rest.fake.is_floating_point():
        return rest
    signed = graph.call(torch.copysign, [rest, operands[1]])
    return graph.call(torch.where, [graph.call(torch.eq, [rest, ConstantValue(0.0)]), signed, rest])


def _copy(frame: Frame, operands: Sequence[Value]) -> Value:
    return frame.capture.graph.call("clone", list(operands), is_method=True)


def _elementwise() -> dict[Any, Elementwise]:
    found: dict[Any, Elementwise] = {}

    def add(names: str, kinds: str, **facts: Any) -> None:
        for pair in names.split():
            theirs, _, ours = pair.partition(":")
            found[getattr(np, theirs)] = Elementwise(_torch(getattr(torch, ours or theirs)), kinds, **facts)

    add("add multiply:mul", "buif", spreads=True, by_number=True)
    add("subtract:sub", "uif", spreads=True, by_number=True)
    add("true_divide", "f", by_number=True)
    add("maximum minimum fmax fmin", "buif", warns=False)
    add("equal:eq not_equal:ne less:lt less_equal:le greater:gt greater_equal:ge", "buif", warns=False, by_number=True)
    add("logical_and logical_or logical_xor logical_not", "buif", warns=False)
    add("bitwise_and bitwise_or bitwise_xor invert:bitwise_not", "bui", warns=False)
    add("negative:neg", "uif", warns=False)
    add("absolute:abs", "buif", warns=False)
    add("fabs:abs floor ceil trunc rint:round", "f", warns=False)
    found[np.positive] = Elementwise(_copy, "uif", warns=False)
    add("isnan isinf isfinite", "buif", warns=False)
    add("signbit", "f", warns=False)
    add("copysign", "f", warns=False)
    add("sqrt sin cos tan sinh cosh log log2 log10 log1p arcsin arccos arctanh", "f", spreads=True)
    add("exp exp2 expm1 tanh arctan arcsinh arccosh reciprocal arctan2 hypot", "f")
    add("square", "uif", spreads=True)
    found[np.power] = Elementwise(_torch(torch.pow), "uif", by_number=True)
    found[np.floor_divide] = Elementwise(_torch(torch.floor_divide), "uif")
    found[np.remainder] = Elementwise(_remainder, "uif")
    return found


ELEMENTWISE: Final = _elementwise()
OPERATORS: Final[dict[Callable[..., Any], Any]] = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide,
    operator.floordiv: np.floor_divide,
    operator.mod: np.remainder, operator.pow: np.power, operator.matmul: np.matmul, operator.and_: np.bitwise_and,
    operator.or_: np.bitwise_or,
    operator.xor: np.bitwise_xor, operator.lshift: np.left_shift, operator.rshift: np.right_shift, operator.lt: np.less,
    operator.le: np.less_equal,
    operator.eq: np.equal, operator.ne: np.not_equal, operator.gt: np.greater, operator.ge: np.greater_equal,
    operator.neg: np.negative,
    operator.pos: np.positive, operator.invert: np.invert,
}
"""The function that an operator between arrays calls."""


def plain_operand(value: Value) -> Any:
    """A Python number that an operation may take; None for what is none."""
    if isinstance(value, NumpyValue) or not value.is_constant():
        return None
    number = value.constant()
    return number if type(number) in (bool, int, float) else None


def apply(frame: Frame, ufunc: Any, operands: Sequence[Value], out: ArrayValue | None = None) -> Value:
    """`ufunc(*operands)`, or with `out=out`."""
    known = ELEMENTWISE.get(ufunc)
    name = ufunc.__name__
    if known is None or ufunc.nin != len(operands) or ufunc.nout != 1:
        raise refused(f"np.{name}()")
    numbers = [plain_operand(value) for value in operands]
    if any(number is None and not isinstance(value, NumpyValue) for number, value in zip(numbers, operands)):
        raise refused(f"np.{name}() of {' and '.join(value.describe() for value in operands)}")
    if out is None and not any(isinstance(value, NumpyValue) for value in operands):
        raise refused(f"np.{name}() of numbers of which it warns")
    loop = _loop(ufunc, operands, numbers)
    kind = loop[0].kind
    if kind not in known.kinds or any(dtype.kind not in "buif" for dtype in loop):
        raise refused(f"np.{name}() in {loop[0]}")
    if (
        kind in "ui"
        and ufunc in (np.add, np.subtract, np.multiply, np.power, np.negative, np.square)
        and not any(isinstance(v, ArrayValue) for v in operands)
    ):
        raise refused(f"np.{name}() of numbers, whose overflow numpy warns of")
    _check_integers(ufunc, kind, numbers, operands)
    converted = [
        _operand(frame, value, number, dtype, as_number=known.by_number and position == 1)
        for position, (value, number, dtype) in enumerate(zip(operands, numbers, loop))
    ]
    result = known.make(frame, converted)
    strides = _strides([value for value in operands if isinstance(value, ArrayValue)], result)
    made = checked_result(frame, result, loop[-1], strides, name)
    if known.warns and loop[-1].kind == "f":
        check_finite(frame, made, tuple(v for v in converted if isinstance(v, TensorValue)) if known.spreads else ())
    if out is not None:
        return write(frame, out, made, loop[-1])
    return ArrayValue(made) if made.fake.dim() else NumberValue(made)


def _loop(ufunc: Any, operands: Sequence[Value], numbers: Sequence[Any]) -> tuple[np.dtype[Any], ...]:
    """The dtypes that numpy converts the operands to and gives; Python's own numbers are weak (NEP 50)."""
    given = [
        value.dtype if isinstance(value, NumpyValue) else np.dtype(bool) if type(number) is bool else type(number)
        for value, number in zip(operands, numbers)
    ]
    try:
        loop: tuple[np.dtype[Any], ...] = ufunc.resolve_dtypes((*given, None))
    except TypeError:
        raise refused(f"np.{ufunc.__name__}() of these dtypes") from None
    if any(torch_dtype(dtype) is None for dtype in loop):
        raise refused(f"np.{ufunc.__name__}() in {loop[0]}")
    return loop


def _check_integers(ufunc: Any, kind: str, numbers: Sequence[Any], operands: Sequence[Value]) -> None:
    """Integer operations that are the same only for some numbers."""
    if ufunc is np.power and kind in "ui" and not (type(numbers[1]) is int and numbers[1] >= 0):
        raise refused("np.power() of integers with an exponent that may be negative")
    if ufunc in (np.floor_divide, np.remainder) and kind in "ui" and not (type(numbers[1]) is int and numbers[1] > 0):
        raise refused(f"np.{ufunc.__name__}() of integers by what may be zero")


def number_as(number: Any, dtype: np.dtype[Any]) -> Any:
    """A Python number as numpy converts it to a dtype."""
    if dtype.kind in "ui":
        limits = np.iinfo(dtype)
        if type(number) not in (int, bool) or not limits.min <= number <= limits.max:
            raise refused(f"{number!r} as {dtype}")
        return int(number)
    if dtype.kind == "b" and (type(number) is not int or abs(number) < 1 << 63):
        return bool(number)
    if dtype.kind != "f":
        raise refused(f"{number!r} as {dtype}")
    with np.errstate(all="ignore"):
        found = dtype.type(number).item()
    if np.isfinite(found) != (type(number) is not float or np.isfinite(number)):
        raise refused(f"{number!r} as {dtype}")
    return found


def _operand(frame: Frame, value: Value, number: Any, dtype: np.dtype[Any], as_number: bool) -> Value:
    if isinstance(value, NumpyValue):
        return cast(frame, value.tensor, dtype)
    plain = number_as(number, dtype)
    return ConstantValue(plain) if as_number and dtype.kind != "b" else full(frame, (), plain, dtype)


def cast(frame: Frame, tensor: TensorValue, dtype: np.dtype[Any]) -> TensorValue:
    """A tensor in another dtype, or the same one."""
    wanted = torch_dtype(dtype)
    if tensor.fake.dtype == wanted:
        return tensor
    if tensor.fake.is_floating_point() and dtype.kind in "ui":
        # What no integer stands for numpy warns of, and gives what the machine gives.
        limits = np.iinfo(dtype)
        graph = frame.capture.graph
        low, high = float(limits.min), float(limits.max)
        above = graph.call(torch.ge, [tensor, ConstantValue(low)])
        below = graph.call(torch.lt, [tensor, ConstantValue(high)])
        check_all(frame, graph.call(torch.logical_and, [above, below]))
    made = frame.capture.graph.call("to", [tensor, ConstantValue(wanted)], is_method=True)
    assert isinstance(made, TensorValue)
    if tensor.fake.is_floating_point() and dtype.kind == "f" and dtype.itemsize < tensor.fake.itemsize:
        check_finite(frame, made, (tensor,))
    return made


def full(frame: Frame, shape: tuple[int, ...], number: Any, dtype: np.dtype[Any]) -> TensorValue:
    """A tensor full of a number."""
    options: dict[str, Value] = {
        "dtype": ConstantValue(torch_dtype(dtype)),
        "device": ConstantValue(torch.device("cpu")),
    }
    made = frame.capture.graph.call(
        torch.full, [TupleValue([ConstantValue(n) for n in shape]), ConstantValue(number)], options
    )
    assert isinstance(made, TensorValue)
    return made


def constant_number(frame: Frame, number: Any) -> Value:
    """One of numpy's numbers that is known."""
    if type(number) is bool:
        return ConstantValue(number)
    if not isinstance(number, np.generic) or torch_dtype(number.dtype) is None:
        raise refused(f"a {type(number).__name__}")
    return NumberValue(full(frame, (), number.item(), number.dtype), known=number)


def c_ordered(fake: torch.Tensor) -> bool:
    """Whether a tensor's dimensions lie in memory in their own order, with or without gaps."""
    strides = [stride for size, stride in zip(fake.shape, fake.stride()) if size != 1]
    return all(a >= b for a, b in zip(strides, strides[1:])) and 0 not in strides


def _strides(arrays: Sequence[ArrayValue], result: Value) -> tuple[int, ...] | None:
    """The strides that numpy gives the result of an elementwise function of these arrays; None where that is not
    known."""
    assert isinstance(result, TensorValue)
    if all(c_ordered(array.fake) for array in arrays):
        return tuple(contiguous(result.fake.shape))
    first = arrays[0].fake
    alike = all(array.fake.shape == first.shape and array.fake.stride() == first.stride() for array in arrays)
    if alike and first.shape == result.fake.shape and _is_dense(first):
        return tuple(first.stride())
    return None


def _is_dense(fake: torch.Tensor) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order, and no dimension of one element leaves a
    choice."""
    expected = 1
    for stride, size in sorted(zip(fake.stride(), fake.shape)):
        if stride != expected or size == 1:
            return False
        expected *= size
    return True


def checked_result(
    frame: Frame, result: Value, dtype: np.dtype[Any], strides: tuple[int, ...] | None, name: str
) -> TensorValue:
    """The result of an operation, if it is what numpy gives by dtype and strides, and not empty."""
    result = realize(frame, result)
    assert isinstance(result, TensorValue)
    fake = result.fake
    if (
        fake.dtype != torch_dtype(dtype)
        or strides is None
        or any(size != 1 and a != b for size, a, b in zip(fake.shape, fake.stride(), strides))
    ):
        raise refused(f"np.{name}(), whose result has another dtype or layout as a tensor,")
    if not all(fake.shape):
        raise refused(f"np.{name}() with an empty result")
    if torch.is_autocast_enabled("cpu"):
        raise refused(f"np.{name}() under autocast")
    return result


def write(frame: Frame, target: ArrayValue, value: TensorValue, dtype: np.dtype[Any]) -> ArrayValue:
    """Write the result of a function into an array (`out=`, `+=`)."""
    if (
        not np.can_cast(dtype, target.dtype, "same_kind")
        or value.fake.shape != target.fake.shape
        or not _is_apart(target.fake)
    ):
        raise refused("a result that does not fit the array it is written into")
    frame.capture.graph.call("copy_", [target.tensor, cast(frame, value, target.dtype)], is_method=True)
    return target


def _is_apart(fake: torch.Tensor) -> bool:
    """Whether no two elements share memory, as they do in broadcast arrays."""
    return all(stride or size == 1 for size, stride in zip(fake.shape, fake.stride()))
