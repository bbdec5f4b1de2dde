"""Activations and losses with a number that is not assumed, as the arithmetic that they do: the slope of a leaky ReLU,
the delta of a Huber loss, how much labels are smoothed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import torch

from framejit.values.base import Value
from framejit.values.constant import ConstantValue
from framejit.values.handlers import handles
from framejit.values.runtime_numbers.number_forms import EXACT, NUMBERS, beside, method, python_number
from framejit.values.runtime_numbers.read_number import ReadNumberValue
from framejit.values.sym_number import SymNumberValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame, Graph

_REDUCTIONS: Final = ("", "mean", "sum")
"""By torch's numbers for them."""


def _leaky_relu(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "negative_slope"), args)) | kwargs
    tensor, slope = given.get("input"), given.get("negative_slope")
    number = beside(slope, tensor) if isinstance(tensor, TensorValue) and isinstance(slope, SymNumberValue) else None
    if number is None or called != "leaky_relu":
        return None
    factor = graph.call(torch.where, [method(graph, "gt", tensor, 0), ConstantValue(1.0), number])
    return method(graph, "mul", tensor, factor)


def _threshold(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "threshold", "value"), args)) | kwargs
    tensor, limit, value = (given.get(name) for name in ("input", "threshold", "value"))
    if called != "threshold" or not isinstance(tensor, TensorValue) or tensor.fake.dtype not in EXACT:
        return None
    limit, value = python_number(limit), python_number(value)
    if limit is None or value is None:
        return None
    return graph.call(torch.where, [method(graph, "le", tensor, limit), value, tensor])


def _hardtanh(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """No gradient goes to what equals a bound."""
    given = dict(zip(("input", "min_val", "max_val"), args)) | kwargs
    tensor, least, most = (given.get(name) for name in ("input", "min_val", "max_val"))
    if called != "hardtanh" or not isinstance(tensor, TensorValue) or tensor.fake.dtype not in EXACT:
        return None
    least, most = python_number(least), python_number(most)
    if least is None or most is None:
        return None
    outside = method(graph, "logical_or", method(graph, "le", tensor, least), method(graph, "ge", tensor, most))
    bound = method(graph, "clamp", method(graph, "detach", tensor), least, most)
    return graph.call(torch.where, [outside, bound, tensor])


def _huber(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "target", "reduction", "delta"), args)) | kwargs

    def losses(squares: Value, gap: Value, delta: Value, half: Value) -> tuple[Value, Value]:
        return method(graph, "mul", squares, 0.5), method(graph, "mul", method(graph, "sub", gap, half), delta)

    return _by_gap(graph, given, "delta", losses)


def _smooth_l1(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("input", "target", "reduction", "beta"), args)) | kwargs

    def losses(squares: Value, gap: Value, beta: Value, half: Value) -> tuple[Value, Value]:
        return method(graph, "div", method(graph, "mul", squares, 0.5), beta), method(graph, "sub", gap, half)

    return _by_gap(graph, given, "beta", losses)


def _by_gap(
    graph: Graph, given: dict[str, Value], limit_name: str,
    losses: Callable[[Value, Value, Value, Value], tuple[Value, Value]],
) -> Value | None:
    """A loss that is of one kind up to a limit of the difference, and of another beyond. `losses`: gives both, of the
    differences' squares and sizes, the limit and half of it."""
    limit = given.get(limit_name)
    if not isinstance(limit, SymNumberValue) or not _are_alike(given) or not limit.surely("gt", 0):
        return None
    difference = method(graph, "sub", given["input"], given["target"])
    gap = method(graph, "abs", difference)
    half = limit.binary("*", ConstantValue(0.5), False)
    if half is None:
        return None
    is_far = method(graph, "gt", gap, limit)
    near, far = losses(_squares(graph, difference, is_far), gap, limit, half)
    return _reduced(graph, graph.call(torch.where, [is_far, far, near]), given["reduction"])


def _squares(graph: Graph, difference: Value, is_far: Value) -> Value:
    """Those of small differences. In the place of others stand zeros, for autograd would make nan of infinite ones."""
    small = graph.call(torch.where, [is_far, ConstantValue(0.0), difference])
    return method(graph, "mul", small, small)


def _cross_entropy(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """It is linear in how much labels are smoothed: a part of the loss of labels as they are, and one of labels that
    say nothing."""
    smoothing = args[5] if len(args) == 6 else kwargs.get("label_smoothing")
    if not isinstance(smoothing, SymNumberValue) or not smoothing.surely("gt", 0) or not smoothing.surely("lt", 1):
        return None
    rest = smoothing.binary("-", ConstantValue(1), True)
    if rest is None or not isinstance(args[0], TensorValue) or args[0].fake.dtype not in EXACT:
        return None
    others = {name: value for name, value in kwargs.items() if name != "label_smoothing"}

    def smoothed(amount: float) -> Value:
        given = {**others, "label_smoothing": ConstantValue(amount)}
        return graph.call(torch._C._nn.cross_entropy_loss, [*args[:5]], given)

    return method(
        graph, "add", method(graph, "mul", smoothed(0.0), rest), method(graph, "mul", smoothed(1.0), smoothing)
    )


def _margin_ranking(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    given = dict(zip(("first", "second", "target", "margin", "reduction"), args)) | kwargs
    margin = given.get("margin")
    tensors = [given.get(name) for name in ("first", "second", "target")]
    if not isinstance(margin, SymNumberValue) or len(args) != 5:
        return None
    if not all(isinstance(tensor, TensorValue) and tensor.fake.dtype in EXACT for tensor in tensors):
        return None
    gap = method(graph, "mul", method(graph, "neg", tensors[2]), method(graph, "sub", *tensors[:2]))
    return _reduced(graph, method(graph, "clamp_min", method(graph, "add", gap, margin), 0), given["reduction"])


def _batch_norm(graph: Graph, called: str, args: Sequence[Value], kwargs: dict[str, Value]) -> Value | None:
    """What is known of the batch alone goes into statistics of its own; the program's follow by the momentum."""
    if kwargs or len(args) not in (8, 9):
        return None
    is_python = len(args) == 8  # torch.nn.functional.batch_norm, with its arguments in another order
    places = (1, 2) if is_python else (3, 4)
    function = torch.nn.functional.batch_norm if is_python else torch.batch_norm
    training, momentum = args[5], args[6]
    known = [args[place] for place in places]
    if not isinstance(momentum, NUMBERS) or not isinstance(training, ConstantValue) or not training.value:
        return None
    if not isinstance(args[0], TensorValue) or args[0].fake.dim() < 2:
        return None
    number: Value | None = None
    for statistics in known:
        if not isinstance(statistics, TensorValue) or statistics.fake.dtype not in EXACT:
            return None
        if statistics.fake.requires_grad or statistics.fake.shape != args[0].fake.shape[1:2]:  # which torch refuses
            return None
        number = beside(momentum, statistics)
    if number is None:
        return None
    if args[0].fake.numel() == 0:  # a batch without elements leaves the program's as they are
        return graph.call(function, [*args[:6], ConstantValue(0.0), *args[7:]])
    own = [method(graph, "zero_", graph.call(torch.empty_like, [statistics])) for statistics in known]
    given = [*args]
    given[places[0]], given[places[1]], given[6] = own[0], own[1], ConstantValue(1.0)
    result = graph.call(function, given)
    rest = graph.call(torch.rsub, [number, ConstantValue(1)])
    for statistics, of_batch in zip(known, own):
        before, now = method(graph, "mul", statistics, rest), method(graph, "mul", of_batch, number)
        written = graph.call(getattr, [statistics, ConstantValue("data")])  # torch does not count this write
        method(graph, "copy_", written, method(graph, "add", before, now))
    return result


@handles(torch.nn.functional.batch_norm)
def _averaged(frame: Frame, args: list[Value], kwargs: dict[str, Value]) -> Value | None:
    """With a momentum that is read from a count of batches: it is not read for an argument of the operation then."""
    if len(args) < 8 or not isinstance(args[6], ReadNumberValue):
        return None
    return _batch_norm(frame.capture.graph, "batch_norm", args, kwargs)


def _are_alike(given: dict[str, Value]) -> bool:
    """Whether a loss is of two tensors of one dtype and device."""
    tensors = [given.get("input"), given.get("target")]
    if "reduction" not in given or not all(isinstance(tensor, TensorValue) for tensor in tensors):
        return False
    first, second = (tensor.fake for tensor in tensors if isinstance(tensor, TensorValue))
    return first.dtype in EXACT and (first.dtype, first.device) == (second.dtype, second.device)


def _reduced(graph: Graph, loss: Value, reduction: Value) -> Value:
    name = _REDUCTIONS[reduction.constant()]
    return method(graph, name, loss) if name else loss


NETWORKS: Final[dict[str | None, Callable[[Graph, str, Sequence[Value], dict[str, Value]], Value | None]]] = {
    "leaky_relu": _leaky_relu, "threshold": _threshold, "hardtanh": _hardtanh, "batch_norm": _batch_norm,
    "huber_loss": _huber, "smooth_l1_loss": _smooth_l1, "cross_entropy_loss": _cross_entropy,
    "margin_ranking_loss": _margin_ranking,
}
"""As `FORMS`."""
