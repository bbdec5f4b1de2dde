"""Operations that take a tensor without dimensions in a number's place, or are made of such, with numbers that are not
assumed: `x.clamp(max=number)`, `x.masked_fill(mask, number)`, `torch.full(sizes, number)`, `torch.tensor(number)`.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.environment.clamp_gradients import passes_gradients_at_bounds
from framejit.environment.nan_bounds import nan_alone_binds
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue
from framejit.values.wrap import from_python

if TYPE_CHECKING:
    from framejit.values.context import Graph

NUMBERS: Final = (SymNumberValue, ReadNumberValue)
EXACT: Final = (torch.float32, torch.float64)
"""The dtypes in which numbers that change are computed with as torch does."""


def method(graph: Graph, name: str, *operands: Any) -> Value:
    """What a method of tensors gives for values and plain numbers."""
    values = [operand if isinstance(operand, Value) else from_python(operand) for operand in operands]
    return graph.call(name, values, is_method=True)


def python_number(value: Value | None) -> SymNumberValue | ConstantValue | None:
    """A number of Python's that is assumed or is not; None for anything else."""
    if isinstance(value, SymNumberValue):
        return value
    return value if isinstance(value, ConstantValue) and type(value.value) in (int, float) else None


def beside(number: Value, tensor: TensorValue) -> Value | None:
    """A tensor without dimensions in a number's place, of the other tensor's dtype, which torch makes of the number,
    too. Where it is too large for that, these operations raise."""
    dtype = tensor.fake.dtype
    if tensor.cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        return None
    if isinstance(number, ReadNumberValue):
        device = number.tensor.fake.device
        return number.fitting(dtype) if device.type == "cpu" or device == tensor.fake.device else None
    if not isinstance(number, SymNumberValue) or dtype not in EXACT:
        return None
    most = torch.finfo(torch.float32).max
    if dtype is torch.float32 and not (number.surely("ge", -most) and number.surely("le", most)):
        return None
    return number.in_dtype(dtype)


def _clamp(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """As one step for the least and one for the greatest number, of which each takes a tensor as well. Where a gradient
    is wanted these are of the numbers alone, and what lies within is chosen beside them: to what equals a bound, and to
    nan, torch 2.15 gives another gradient beside a tensor."""
    given = dict(zip(("input", "min", "max"), args)) | kwargs
    tensor = given.get("input")
    if not isinstance(tensor, TensorValue) or not {*given} <= {"input", "min", "max"}:
        return None
    wants_gradient = tensor.fake.requires_grad and torch.is_grad_enabled()
    result: Value = method(graph, "detach", tensor) if wants_gradient else tensor
    for name in ("min", "max"):
        bound = given.get(name, NONE)
        if isinstance(bound, NUMBERS):
            number = beside(bound, tensor)
            if number is None:
                return None
            given[name] = number
        elif not isinstance(bound, ConstantValue):
            return None
    bounds = {name: given[name] for name in ("min", "max") if not is_none(given.get(name, NONE))}
    for name, bound in bounds.items():
        if len(bounds) == 1 and called.strip("_") in ("clamp", "clip") and not nan_alone_binds():
            bound = _without_nan(graph, bound, -math.inf if name == "min" else math.inf)
        result = graph.call(f"clamp_{name}", [result, bound], is_method=True)
    if wants_gradient:
        above, below = ("ge", "le") if passes_gradients_at_bounds() else ("gt", "lt")
        within = [method(graph, above if name == "min" else below, tensor, bound) for name, bound in bounds.items()]
        inside = within[0] if len(within) == 1 else method(graph, "logical_and", *within)
        result = graph.call(torch.where, [inside, tensor, result])
    return graph.call("copy_", [tensor, result], is_method=True) if called.endswith("_") else result


def _without_nan(graph: Graph, bound: Value, instead: float) -> Value:
    """A bound, or another number in the place of nan."""
    numbers = [ConstantValue(number) for number in (instead, math.inf, -math.inf)]
    is_floating = isinstance(bound, TensorValue) and bound.fake.dtype.is_floating_point
    return graph.call("nan_to_num", [bound, *numbers], is_method=True) if is_floating else bound


def _clamp_on_one_side(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    side = called.strip("_").removeprefix("clamp_")
    given = dict(zip(("input", side), args)) | kwargs
    return _clamp(graph, called, (), given) if {*given} == {"input", side} else None


def _masked_fill(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "mask", "value"), args)) | kwargs
    tensor, mask, number = (given.get(name) for name in ("input", "mask", "value"))
    if len(given) != 3 or not isinstance(tensor, TensorValue) or not isinstance(mask, TensorValue) or number is None:
        return None
    filling = beside(number, tensor)
    return None if filling is None else graph.call(called, [tensor, mask, filling], is_method=True)


def _lerp(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """With a tensor for the weight where ATen takes one without dimensions; on GPUs, whose kernel does not, as the
    arithmetic that it is for small weights (aten/src/ATen/native/Lerp.h)."""
    given = dict(zip(("input", "end", "weight"), args)) | kwargs
    start, end, weight = (given.get(name) for name in ("input", "end", "weight"))
    if len(given) != 3 or not isinstance(start, TensorValue) or not isinstance(end, TensorValue) or weight is None:
        return None
    if (start.fake.dtype, start.fake.device) != (end.fake.dtype, end.fake.device):
        return None
    number = beside(weight, start)
    if number is None or start.fake.device.type == "cpu":
        return None if number is None else graph.call(called, [start, end, number], is_method=True)
    if not isinstance(weight, SymNumberValue) or not (weight.surely("gt", -0.5) and weight.surely("lt", 0.5)):
        return None
    step = graph.call(operator.mul, [graph.call(operator.sub, [end, start]), number])
    return graph.call(operator.iadd if called.endswith("_") else operator.add, [start, step])


def _where(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 3 or kwargs:
        return None
    is_method = not _is_mask(args[0])  # `x.where(mask, number)`
    mask, chosen = (args[1], [args[0], args[2]]) if is_method else (args[0], [*args[1:]])
    tensor = next((value for value in chosen if isinstance(value, TensorValue)), None)
    if not _is_mask(mask):
        return None
    if tensor is None:
        filled = _among_numbers(chosen)
    elif tensor.fake.dim() and tensor.fake.dtype not in _HALVES:  # without dimensions both dtypes count
        filled = [beside(value, tensor) if isinstance(value, NUMBERS) else value for value in chosen]
    else:
        return None
    given = [value for value in filled if value is not None]
    return graph.call(torch.where, [mask, *given]) if len(given) == 2 else None


def _is_mask(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.dtype is torch.bool


def _among_numbers(numbers: Sequence[Value]) -> list[Value | None]:
    """Numbers of one class, some of which were read from tensors, for a choice between them."""
    if not all(isinstance(number, (ReadNumberValue, ConstantValue)) for number in numbers):
        return []
    kinds = {number.python_type() for number in numbers}
    dtype = {float: torch.get_default_dtype(), int: torch.int64, bool: torch.bool}.get(kinds.pop())
    if kinds or dtype is None:
        return []
    return [number.fitting(dtype) if isinstance(number, ReadNumberValue) else number for number in numbers]


def _fill(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "value"), args)) | kwargs
    tensor, number = given.get("input"), given.get("value")
    if len(given) != 2 or not isinstance(tensor, TensorValue) or number is None or not called.endswith("_"):
        return None
    filling = beside(number, tensor)
    return None if filling is None else graph.call(called, [tensor, filling], is_method=True)


def _power(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`x.pow(number)`."""
    given = dict(zip(("input", "exponent"), args)) | kwargs
    tensor, exponent = given.get("input"), given.get("exponent")
    if len(given) != 2 or not isinstance(tensor, TensorValue) or not isinstance(exponent, SymNumberValue):
        return None
    number = beside(exponent, tensor)
    return None if number is None else method(graph, "pow_" if called == "pow_" else "pow", tensor, number)


def _set_item(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 3 or not isinstance(args[0], TensorValue) or not isinstance(args[2], NUMBERS):
        return None
    given = beside(args[2], args[0])
    return None if given is None else graph.call(operator.setitem, [*args[:2], given])


def _compared(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    if len(args) != 2 or kwargs or not isinstance(args[0], TensorValue) or called.endswith("_"):
        return None
    function, number = getattr(operator, called), args[1]
    if isinstance(number, SymNumberValue):
        operand = number.as_tensor(function, args[0])
    else:
        operand = number.beside(function, args[0]) if isinstance(number, ReadNumberValue) else number
    return graph.call(function, [args[0], operand]) if isinstance(operand, TensorValue) else None


def _full(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """Tensors of one number, or of a list of numbers, which are no tensors yet. The number is the last argument."""
    if "fill_value" in kwargs:
        args, kwargs = [*args, kwargs["fill_value"]], {k: v for k, v in kwargs.items() if k != "fill_value"}
    if not args or not {*kwargs} <= {"dtype", "device"}:
        return None
    data, is_list = args[-1], isinstance(args[-1], _LISTS)
    numbers = [*data.items] if isinstance(data, _LISTS) else [data]
    unknown = [number for number in numbers if isinstance(number, NUMBERS)]
    if not unknown or len(numbers) > len(unknown) + sum(isinstance(number, ConstantValue) for number in numbers):
        return None
    # the dtype follows from which it is
    if any(isinstance(number, ReadNumberValue) and number.is_either for number in unknown):
        return None
    ones = [ConstantValue(number.python_type()(1)) if isinstance(number, NUMBERS) else number for number in numbers]
    function = getattr(torch, called, None)
    made = graph.call(
        function or called, [*args[:-1], ListValue(ones) if is_list else ones[0]], kwargs, is_method=function is None
    )
    if not isinstance(made, TensorValue) or made.cls is not torch.Tensor:
        return None
    may_be_infinite = called in ("tensor", "as_tensor", "new_tensor")
    found = [_filled_with(graph, number, made, may_be_infinite) for number in numbers]
    filled = [value for value in found if value is not None]
    if len(filled) < len(numbers):
        return None
    if is_list:
        return graph.call(torch.stack, [ListValue(filled)])
    times = torch.logical_and if made.fake.dtype is torch.bool else operator.mul
    return graph.call(times, [made, *filled])


def _filled_with(graph: Graph, number: Value, made: TensorValue, may_be_infinite: bool) -> Value | None:
    """A number as a tensor without dimensions that goes into one that is made."""
    options: dict[str, Value] = {"dtype": ConstantValue(made.fake.dtype), "device": ConstantValue(made.fake.device)}
    if isinstance(number, SymNumberValue):
        return beside(number, made)
    if not isinstance(number, ReadNumberValue):
        return graph.call(torch.full, [TupleValue([]), number], options)
    found = number.fitting(made.fake.dtype, may_be_infinite)
    if found is None or number.tensor.fake.device == made.fake.device:
        return found
    return graph.call("to", [found, options["device"]], is_method=True)


_LISTS: Final = (ListValue, TupleValue)
_HALVES: Final = (torch.float16, torch.bfloat16)
FORMS: Final[dict[str | None, Callable[[Graph, str, Sequence[Value], dict[str, Value]], Value | None]]] = {
    "clamp": _clamp, "clip": _clamp, "clamp_min": _clamp_on_one_side, "clamp_max": _clamp_on_one_side,
    "masked_fill": _masked_fill, "where": _where, "fill": _fill, "lerp": _lerp, "setitem": _set_item, "pow": _power,
    **dict.fromkeys(("lt", "le", "eq", "ne", "gt", "ge"), _compared),
    **dict.fromkeys(("full", "full_like", "new_full", "tensor", "as_tensor", "new_tensor", "scalar_tensor"), _full),
}
"""By the name of an operation what makes others of it, or gives None."""
