"""`x[i] += y` with a number of data in the key, as in a table of counts: the graph has a copy of what stands there
(`number_index.py`), changes that, and writes it where it was.

Python changes the view that `x[i]` gives, and then stores it at its own place. Nothing else has that view, so that it
comes to the same, but for one write that autograd counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from framejit.values.base import Value, realize
from framejit.values.constant import SliceValue
from framejit.values.runtime_numbers.number_index import TakenElement
from framejit.values.tensors.counted_writes import count_a_write
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from framejit.values.context import Frame


def changed_element(frame: Frame, symbol: str, element: Value, other: Value, at: Sequence[Value]) -> Value | None:
    """What `element symbol= other` gives, which is then stored where the element was taken from. `at`: the container
    and the key that it is stored under, or the bounds of a slice. None where the element is no such copy."""
    if not isinstance(element, TensorValue) or not isinstance(element.copy_of, TakenElement):
        return None
    taken, (container, *key) = element.copy_of, at
    found = taken.key.parts[: len(key)] if len(key) > 1 and isinstance(taken.key, SliceValue) else [taken.key]
    if realize(frame, container) is not taken.base or [realize(frame, part) for part in key] != found:
        return None
    if taken.is_stale or element.fake is not taken.fake or taken.base.fake.requires_grad:
        return None
    other = realize(frame, other)
    if isinstance(other, TensorValue) and other.fake.requires_grad:
        return None
    apart = frame.capture.graph.call("clone", [element], is_method=True)
    result = frame.binary(symbol, apart, other, True)
    count_a_write(frame, taken.base)
    return result
