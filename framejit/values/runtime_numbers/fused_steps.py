"""Steps of fused optimisers with numbers that are not assumed. Their learning rate may be a tensor; momenta and the
like, which OneCycleLR changes besides, are numbers to these operations. With such a step is written down tensor by
tensor, as the optimisers' own Python has it, and fused as well."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import NONE, ConstantValue
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Graph

_LISTS: Final = (ListValue, TupleValue)
_DTYPES: Final = (torch.float32, torch.float64)
_NUMBERS: Final = ("lr", "beta1", "beta2", "weight_decay", "eps", "momentum", "dampening")


def written_out(graph: Graph, target: Any, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """What a step gives, nothing; None where it is none of these, or not known to give the same."""
    step = _STEPS.get(str(getattr(target, "__name__", target)))
    if step is None or not all(isinstance(part, _LISTS) for part in args):
        return None
    if any(kwargs.get(name, NONE) is not NONE and not _is_none(kwargs[name]) for name in ("grad_scale", "found_inf")):
        return None
    lists = [[*part.items] for part in args if isinstance(part, _LISTS)]
    tensors = [each for part in lists for each in part]
    if not all(isinstance(each, TensorValue) and each.fake.device.type == "cpu" for each in tensors):
        return None
    if any(each.fake.dtype not in _DTYPES for each in tensors if isinstance(each, TensorValue)):
        return None
    numbers = [kwargs[name] for name in _NUMBERS if name in kwargs]
    if not all(isinstance(each, (SymNumberValue, ConstantValue)) for each in numbers):
        return None
    writer = _Writer(graph, kwargs)
    for place in range(len(lists[0])):
        step(writer, *(part[place] if part else None for part in lists))
    return NONE


def _is_none(value: Value) -> bool:
    return isinstance(value, ConstantValue) and value.value is None


class _Writer:
    """Operations of the graph, and the step's settings."""

    def __init__(self, graph: Graph, kwargs: dict[str, Value]) -> None:
        self._graph, self._kwargs = graph, kwargs

    def __getitem__(self, name: str) -> Any:
        return self._kwargs[name]

    def is_on(self, name: str) -> bool:
        """Whether a setting is True, or a number other than 0."""
        value = self._kwargs[name]
        if isinstance(value, SymNumberValue):
            return value.surely("ne", 0) or not value.surely("eq", 0)
        return bool(value.constant())

    def call(self, method: str, *args: Value, **kwargs: Value) -> Any:
        """A method of the first."""
        return self._graph.call(method, list(args), kwargs, is_method=True)

    def tensor(self, name: str) -> Any:
        """A number as a tensor without dimensions, in the precision of Python's."""
        value = self._kwargs[name]
        made = value.in_dtype(torch.float64) if isinstance(value, SymNumberValue) else None
        return made or self._graph.call(torch.scalar_tensor, [value], {"dtype": ConstantValue(torch.float64)})

    def rest(self, name: str) -> Any:
        """What is missing to 1."""
        value = self._kwargs[name]
        if not isinstance(value, SymNumberValue):
            return ConstantValue(1 - value.constant())
        made = value.binary("-", ConstantValue(1), True)
        return ConstantValue(1 - value.constant()) if made is None else made

    def write(self, tensor: Value, content: Value) -> None:
        """Into a tensor, as fused operations do: autograd does not count it."""
        self.call("copy_", self._graph.call(getattr, [tensor, ConstantValue("data")]), content)

    def operate(self, function: Callable[..., Any], left: Value, right: Value) -> Any:
        return self._graph.call(function, [left, right])


def _adam(w: _Writer, parameter: Any, gradient: Any, mean: Any, square: Any, most: Any, count: Any) -> None:
    _moments(w, parameter, parameter, _decayed(w, parameter, gradient), mean, square, most, count)


def _adamw(w: _Writer, parameter: Any, gradient: Any, mean: Any, square: Any, most: Any, count: Any) -> None:
    kept = parameter
    if w.is_on("weight_decay"):
        lost = w.operate(operator.mul, w.tensor("lr"), w.tensor("weight_decay"))
        kept = w.operate(operator.mul, parameter, w.operate(operator.sub, ConstantValue(1.0), lost))
    _moments(w, parameter, kept, _upwards(w, gradient), mean, square, most, count)


def _upwards(w: _Writer, gradient: Any) -> Any:
    return w.call("neg", gradient) if w.is_on("maximize") else gradient


def _decayed(w: _Writer, parameter: Any, gradient: Any) -> Any:
    gradient = _upwards(w, gradient)
    return w.call("add", gradient, parameter, alpha=w["weight_decay"]) if w.is_on("weight_decay") else gradient


def _moments(
    w: _Writer, parameter: Any, kept: Any, gradient: Any, mean: Any, square: Any, most: Any, count: Any
) -> None:
    """`kept`: what the parameter is without the gradient."""
    now = w.call("lerp", mean, gradient, w.rest("beta1"))
    w.write(mean, now)
    slower = w.call("mul", square, w["beta2"])
    spread = w.call("addcmul", slower, gradient, gradient, value=w.rest("beta2"))
    w.write(square, spread)
    if w.is_on("amsgrad"):
        spread = w.operate(torch.maximum, most, spread)
        w.write(most, spread)
    steps = w.call("to", count, ConstantValue(torch.float64))
    first, second = (
        w.operate(operator.sub, ConstantValue(1.0), w.operate(operator.pow, w.tensor(name), steps))
        for name in ("beta1", "beta2")
    )
    root = w.operate(operator.truediv, w.call("sqrt", spread), w.call("sqrt", second))
    rate = w.operate(operator.truediv, w.tensor("lr"), first)
    change = w.operate(operator.truediv, now, w.operate(operator.add, root, w["eps"]))
    w.write(parameter, w.operate(operator.sub, kept, w.operate(operator.mul, change, rate)))


def _sgd(w: _Writer, parameter: Any, gradient: Any, buffer: Any) -> None:
    gradient = _decayed(w, parameter, gradient)
    if buffer is not None and w.is_on("momentum"):
        now = gradient
        if not w.is_on("is_first_step"):
            slower = w.call("mul", buffer, w["momentum"])
            now = w.call("add", slower, gradient, alpha=w.rest("dampening"))
        w.write(buffer, now)
        gradient = w.call("add", gradient, now, alpha=w["momentum"]) if w.is_on("nesterov") else now
    w.write(parameter, w.call("sub", parameter, gradient, alpha=w["lr"]))


_STEPS: Final[dict[str, Callable[..., None]]] = {"_fused_adam_": _adam, "_fused_adamw_": _adamw, "_fused_sgd_": _sgd}
