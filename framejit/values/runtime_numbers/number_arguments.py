"""Numbers that are not assumed, among the arguments of tensor operations that take numbers only: `x.mul_(number)`,
`x.add_(y, alpha=number)`, `x.addcdiv_(y, z, value=number)`.

A number in a tensor would do in few of them, and a number that is known makes a graph for each. So the operation is
written down as the arithmetic that it does, with the number as a tensor without dimensions. What is computed in
float32 for halves, or in the dtype that tensors of several have in common, is so here, too, and rounded once; with
`alpha` torch's own kernels round now more, now less, by the element's place in a vector.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import torch

from framejit.backends.may_raise import operation_name
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.runtime_numbers.fused_steps import written_out
from framejit.values.runtime_numbers.number_draws import DRAWS
from framejit.values.runtime_numbers.number_forms import FORMS, NUMBERS
from framejit.values.runtime_numbers.number_networks import NETWORKS
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Graph

_FORMS: Final = FORMS | NETWORKS | DRAWS
_OPERATORS: Final = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "truediv": operator.truediv,
}
_ROUNDING_NUMBERS: Final = ("add", "sub")
"""What rounds the number itself to halves on CPUs, and not on GPUs (aten/src/ATen/native/cpu/BinaryOpsKernel.cpp)."""
_COMPUTED_IN: Final = {
    torch.float64: torch.float64, torch.float32: torch.float32, torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
}


def by_arithmetic(
    graph: Graph, target: Any, args: Sequence[Value], kwargs: dict[str, Value]
) -> Value | None:
    """The result of an operation that takes numbers only, as arithmetic on tensors, where one of its numbers is not
    assumed. None where there is no such number, or where it is not known to give the same."""
    if not any(_has_number(value) for value in (*args, *kwargs.values())) and not any(map(_is_factor, kwargs.values())):
        return None
    called = str(getattr(target, "__name__", target))
    if called.startswith("_foreach_"):
        return _of_lists(graph, called.removeprefix("_foreach_"), args, kwargs)
    if called in _WITH_RATE:
        found = _with_rate(graph, target, args, kwargs)
        return written_out(graph, target, args, kwargs) if found is None else found
    name = operation_name(target)
    if name in _FORMS:
        return _FORMS[name](graph, called, args, kwargs)
    if name is None or name not in _PARTS:
        return None
    taken = _PARTS[name](args, kwargs)
    if taken is None:
        return None
    tensors, factor, is_operand = taken
    if isinstance(factor, ReadNumberValue) and factor.cls is bool:  # which torch does not subtract
        return None
    first = tensors[0]
    dtype, device = first.fake.dtype, first.fake.device
    if not all(
        tensor.cls in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and tensor.fake.dtype in _COMPUTED_IN
        and tensor.fake.device == device
        for tensor in tensors
    ):
        return None
    common = _common_dtype(tensors)
    if len(tensors) == 3 and any(tensor.fake.dtype != common for tensor in tensors):  # some gradients are rounded more
        return None
    wide = _COMPUTED_IN[common]
    if isinstance(factor, TensorValue):
        amount = graph.call("to", [factor, ConstantValue(wide)], is_method=True)
    else:
        amount = factor.in_dtype(wide)
    if amount is None:
        return None
    if dtype != wide and is_operand and name in _ROUNDING_NUMBERS and device.type == "cpu":
        amount = graph.call("to", [amount, ConstantValue(dtype)], is_method=True)

    def computed(tensor: TensorValue) -> Value:
        found: Value = tensor
        now = tensor.fake.dtype
        for wanted in (common, wide):
            if now != wanted:
                found, now = graph.call("to", [found, ConstantValue(wanted)], is_method=True), wanted
        return found

    def operate(function: Callable[..., Any], left: Value, right: Value) -> Value:
        return graph.call(function, [left, right])

    if is_operand and _OPERATORS[name] is operator.truediv and device.type != "cpu":
        last, operand = operator.mul, inverse(graph, factor, wide)
    elif is_operand:
        last, operand = _OPERATORS[name], amount
    elif len(tensors) == 2:
        last, operand = _OPERATORS[name], operate(operator.mul, computed(tensors[1]), amount)
    else:
        last, combined = operator.add, operator.mul if name == "addcmul" else operator.truediv
        if device.type == "cpu":
            operand = operate(combined, operate(operator.mul, computed(tensors[1]), amount), computed(tensors[2]))
        else:
            operand = operate(operator.mul, operate(combined, computed(tensors[1]), computed(tensors[2])), amount)
    in_place = called.endswith("_") or target in _IN_PLACE.values()
    if dtype == common == wide:
        return graph.call(_IN_PLACE[last] if in_place else last, [first, operand])
    result = operate(last, computed(first), operand)
    if in_place:
        return graph.call("copy_", [first, result], is_method=True)
    return result if common == wide else graph.call("to", [result, ConstantValue(common)], is_method=True)


def _common_dtype(tensors: Sequence[TensorValue]) -> torch.dtype:
    """The dtype that torch has for an operation on tensors of these: those without dimensions count only where all are
    without."""
    fakes = [tensor.fake for tensor in tensors]
    with_dimensions = [fake.dtype for fake in fakes if fake.dim()]
    return reduce(torch.promote_types, with_dimensions or [fake.dtype for fake in fakes])


def inverse(graph: Graph, number: ReadNumberValue | SymNumberValue, dtype: torch.dtype) -> Value:
    """What torch multiplies with on GPUs where it divides by a number, as a tensor without dimensions: the inverse in
    double precision, rounded to `dtype`. (So does torch 2.11 on an H200: for 10.1 the inverse of the number's float32
    is another one.)"""
    exact = number.in_dtype(torch.float64)
    assert exact is not None  # it was given in `dtype`
    found = graph.call("reciprocal", [exact], is_method=True)
    return found if dtype == torch.float64 else graph.call("to", [found, ConstantValue(dtype)], is_method=True)


def _of_lists(graph: Graph, name: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """An operation on lists of tensors, as one for each tensor. Such are fused as well as those."""
    if not args or not isinstance(args[0], _LISTS) or len(args) > 4:
        return None
    operation = operation_name(name)
    if operation not in _PARTS and operation not in _OF_EACH:
        return None
    plain = name.rstrip("_")
    method = _OF_EACH.get(operation, plain) + name[len(plain) :]
    count = len(args[0].items)
    if any(isinstance(value, _LISTS) and len(value.items) != count for value in args):
        return None
    results = []
    for position in range(count):
        each = [value.items[position] if isinstance(value, _LISTS) else value for value in args]
        if not all(isinstance(value, (TensorValue, ConstantValue, *NUMBERS)) for value in each):
            return None
        given = each[:3] if operation in ("addcmul", "addcdiv") else each
        named = kwargs if len(given) == len(each) else {"value": each[3], **kwargs}
        results.append(graph.call(method, given, named, is_method=True))
    if not name.endswith("_"):
        return ListValue(results)
    return args[0] if _GIVES_LIST else NONE


def _with_rate(graph: Graph, target: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """The step of a fused optimiser, which takes its learning rate as a tensor, too."""
    rate = kwargs.get("lr")
    if not isinstance(rate, SymNumberValue) or sum(_has_number(value) for value in (*args, *kwargs.values())) > 1:
        return None
    number = rate.in_dtype(torch.float64)
    return None if number is None else graph.call(target, [*args], {**kwargs, "lr": number})


def _has_number(value: Value) -> bool:
    return isinstance(value, NUMBERS) or (
        isinstance(value, _LISTS) and any(isinstance(item, NUMBERS) for item in value.items)
    )


def _is_factor(value: Value) -> TypeGuard[TensorValue]:
    """Whether torch would read the number in a tensor, which may stay there."""
    if not isinstance(value, TensorValue) or value.cls is not torch.Tensor or value.copy_of is not None:
        return False
    fake = value.fake
    return fake.numel() == 1 and fake.dim() == 0 and fake.dtype in _COMPUTED_IN and not fake.requires_grad


def _is_near(factor: TensorValue, tensor: TensorValue) -> bool:
    return factor.fake.device.type == "cpu" or factor.fake.device == tensor.fake.device


with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():  # no mode sees it
    _GIVES_LIST: Final = torch._foreach_add_([torch.zeros(())], 1) is not None
"""Whether operations on lists, in place, give the list that they were given; in older versions of torch they give
nothing."""
_WITH_RATE: Final = frozenset(("_fused_sgd_", "_fused_adam_", "_fused_adamw_", "_fused_adagrad_"))
_LISTS: Final = (ListValue, TupleValue)
_OF_EACH: Final = {
    "lerp": "lerp", "clamp_min": "clamp_min", "clamp_max": "clamp_max", "maximum": "clamp_min", "minimum": "clamp_max",
    "pow": "pow",
}
"""By operations on lists what is done to each tensor: the greater one of it and a number is to be no less than that."""
_IN_PLACE: Final = {
    operator.add: operator.iadd, operator.sub: operator.isub, operator.mul: operator.imul,
    operator.truediv: operator.itruediv,
}
Taken = tuple[list[TensorValue], Any, bool]
"""The tensors, the number, and whether it is the operand itself, or else a factor of what the first tensor is changed
by."""


def _binary(args: Sequence[Value], kwargs: dict[str, Value]) -> Taken | None:
    if len(args) != 2 or not isinstance(args[0], TensorValue):
        return None
    if isinstance(args[1], NUMBERS) and not kwargs:
        return [args[0]], args[1], True
    if isinstance(args[1], TensorValue) and [*kwargs] == ["alpha"]:
        alpha = kwargs["alpha"]
        if isinstance(alpha, NUMBERS) or _is_factor(alpha) and _is_near(alpha, args[0]):
            return [args[0], args[1]], alpha, False
    return None


def _with_product(args: Sequence[Value], kwargs: dict[str, Value]) -> Taken | None:
    tensors = [value for value in args if isinstance(value, TensorValue)]
    if len(args) != 3 or len(tensors) != 3 or [*kwargs] != ["value"]:
        return None
    value = kwargs["value"]
    if not isinstance(value, NUMBERS) and not (_is_factor(value) and _is_near(value, tensors[0])):
        return None
    return tensors, value, False


_PARTS: Final[dict[str, Callable[[Sequence[Value], dict[str, Value]], Taken | None]]] = {
    "add": _binary, "sub": _binary, "mul": _binary, "div": _binary, "truediv": _binary,
    "addcmul": _with_product, "addcdiv": _with_product,
}
