"""Random numbers whose distribution a number gives that is not assumed: dropout whose probability changes,
`x.uniform_(-epsilon, epsilon)`. On CPUs, where graphs draw eager's numbers, from the same state of the generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import torch

from framejit.backends.draws.bernoulli_by_number import BERNOULLI_BY_NUMBER
from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue, is_none
from framejit.values.runtime_numbers.number_forms import EXACT, method, python_number
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Graph

def _drawn_into(given: Mapping[str, Value]) -> TensorValue | None:
    """The tensor, where numbers are drawn in the order of its elements, by the generator that is used by default."""
    tensor = given.get("input")
    if not isinstance(tensor, TensorValue) or tensor.cls not in (torch.Tensor, torch.nn.Parameter):
        return None
    fake = tensor.fake
    is_plain = fake.device.type == "cpu" and fake.dtype in EXACT and not fake._has_symbolic_sizes_strides
    return tensor if is_plain and fake.is_contiguous() and is_none(given.get("generator", NONE)) else None


def _bernoulli(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`x.bernoulli_(p)`."""
    given = dict(zip(("input", "p"), args)) | kwargs
    tensor = _drawn_into(given)
    if called != "bernoulli_" or tensor is None:
        return None
    drawn = _drawn(graph, tensor, given.get("p"))
    return None if drawn is None else method(graph, "copy_", tensor, drawn)


def _drawn(graph: Graph, like: TensorValue, probability: Value | None) -> Value | None:
    if not isinstance(probability, SymNumberValue):
        return None
    if not (probability.surely("ge", 0) and probability.surely("le", 1)):
        return None
    number = probability.in_dtype(torch.float64)
    return None if number is None else graph.call(BERNOULLI_BY_NUMBER, [method(graph, "detach", like), number])


def _dropout(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """As torch computes it on CPUs (aten/src/ATen/native/Dropout.cpp)."""
    given = dict(zip(("input", "p", "train"), args)) | kwargs
    tensor, p, train = _drawn_into(given), given.get("p"), given.get("train")
    if tensor is None or not isinstance(p, SymNumberValue) or not isinstance(train, ConstantValue):
        return None
    if not (p.surely("gt", 0) and p.surely("lt", 1)):
        return None
    if not train.value or not tensor.fake.numel():
        return tensor
    kept = p.binary("-", ConstantValue(1), True)
    drawn = _drawn(graph, tensor, kept)
    if drawn is None:
        return None
    return method(graph, "mul_" if called.endswith("_") else "mul", tensor, method(graph, "div", drawn, kept))


def _uniform(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`x.uniform_(least, most)`."""
    given = {"from": ConstantValue(0.0), "to": ConstantValue(1.0)} | dict(zip(("input", "from", "to"), args)) | kwargs
    tensor, least, most = _drawn_into(given), python_number(given["from"]), python_number(given["to"])
    if called != "uniform_" or tensor is None or least is None or most is None:
        return None
    if isinstance(most, SymNumberValue):
        in_order, span = most.compare("ge", least, False), most.binary("-", least, False)
    elif isinstance(least, SymNumberValue):
        in_order, span = least.compare("le", most, False), least.binary("-", most, True)
    else:
        return None
    if in_order is None or not in_order.constant() or span is None:
        return None
    return _shifted(graph, "uniform_", tensor, span, least)


def _normal(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """`x.normal_(mean, deviation)`, `torch.normal(mean, deviation, sizes)`."""
    if called == "normal" and len(args) == 3:
        return _normal_of_sizes(graph, args, kwargs)
    given = {"mean": ConstantValue(0.0), "std": ConstantValue(1.0)} | dict(zip(("input", "mean", "std"), args)) | kwargs
    tensor, mean, deviation = _drawn_into(given), python_number(given["mean"]), python_number(given["std"])
    if called != "normal_" or tensor is None or mean is None or deviation is None:
        return None
    is_possible = (
        deviation.surely("ge", 0) if isinstance(deviation, SymNumberValue) else deviation.value >= 0
    )
    return _shifted(graph, "normal_", tensor, deviation, mean) if is_possible else None


def _normal_of_sizes(graph: Graph, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    mean, deviation = python_number(args[0]), python_number(args[1])
    if mean is None or not isinstance(deviation, SymNumberValue) or not deviation.surely("ge", 0):
        return None
    drawn = graph.call(torch.normal, [ConstantValue(0.0), ConstantValue(1.0), args[2]], kwargs)
    return method(graph, "add", method(graph, "mul", drawn, deviation), mean)


def _shifted(graph: Graph, draw: str, tensor: TensorValue, factor: Value, term: Value) -> Value:
    """A tensor with what is drawn, times a number and plus another: one write, as eager's."""
    like = method(graph, "detach", tensor)
    drawn = method(graph, draw, method(graph, "new_empty", like, tuple(tensor.fake.shape)))
    return method(graph, "copy_", tensor, method(graph, "add", method(graph, "mul", drawn, factor), term))


DRAWS: Final[dict[str | None, Callable[[Graph, str, Sequence[Value], dict[str, Value]], Value | None]]] = {
    "bernoulli": _bernoulli, "dropout": _dropout, "uniform": _uniform, "normal": _normal,
}
"""As `FORMS`."""
