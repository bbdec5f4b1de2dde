"""Calls of torch with tensors in the place of numbers: `torch.full(size, x.max())`, `torch.roll(x, shift)`.

Torch asks such a tensor, which has no dimensions, for its number, as `item()` does. Which arguments are numbers only
torch knows, by the form of the call that it finds to fit. So a call that has asked for one is tried again with `item()`
of tensors, of as few as it takes: with fewer it asks again, and with others than it asks for it is no such call.
"""
from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any, Final

import torch

from framejit.signals import AsksForNumber, Raised, Restart, Unsupported
from framejit.values.base import Value
from framejit.values.containers.lists import ListValue
from framejit.values.containers.tuples import TupleValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MOST: Final = 3
"""Of more such tensors it is not found out which are numbers."""


def called(
    frame: Frame, target: Any, args: list[Value], kwargs: dict[str, Value], is_method: bool = False
) -> Value:
    """What the graph's node for a call gives."""
    graph = frame.capture.graph
    try:
        return graph.call(target, args, kwargs, is_method)
    except AsksForNumber as e:
        asked = e
    own = args[0] if is_method else None
    candidates = [value for value in _parts([*args, *kwargs.values()]) if value is not own and _may_be_number(value)]
    numbers: dict[Value, Value] = {}
    for count in range(1, len(candidates) + 1 if len(candidates) <= _MOST else 1):
        for chosen in combinations(candidates, count):
            try:
                for value in chosen:
                    if value not in numbers:
                        numbers[value] = value.call_method(frame, "item", [], {})
                taken = {value: numbers[value] for value in chosen}
                return graph.call(
                    target, [_replaced(a, taken) for a in args], {n: _replaced(a, taken) for n, a in kwargs.items()},
                    is_method
                )
            except (Unsupported, Raised):
                continue
            except Restart as e:  # a number that is no argument of this call
                if any(e.reason is getattr(number, "refusal", None) for number in numbers.values()):
                    raise Restart(e.seq, asked) from None
                raise
    raise asked


def _parts(values: list[Value]) -> Iterator[Value]:
    """The different values, and those in lists and tuples among them."""
    found: dict[Value, None] = {}
    for value in values:
        found.update(dict.fromkeys(value.items if isinstance(value, (ListValue, TupleValue)) else [value]))
    return iter(found)


def _may_be_number(value: Value) -> bool:
    if not isinstance(value, TensorValue) or value.cls is not torch.Tensor:
        return False
    return value.fake.dim() == 0 and not value.fake.requires_grad


def _replaced(value: Value, numbers: dict[Value, Value]) -> Value:
    if isinstance(value, TupleValue):
        return TupleValue([numbers.get(item, item) for item in value.items], value.cls)
    if isinstance(value, ListValue):
        return ListValue([numbers.get(item, item) for item in value.items])
    return numbers.get(value, value)
