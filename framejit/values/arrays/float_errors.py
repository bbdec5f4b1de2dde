"""Numpy's warnings of floating-point errors (`np.errstate`): graphs can't give them, but they can tell that there is
one to give.

Division by zero, overflow and an invalid operation all leave an inf or nan behind. Where numpy looks for errors, the
graph asserts that there is none; where there is one, the call goes on in plain Python
(capture/replacement/graph_failure.py) and numpy warns, or raises, for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from framejit import _native as native
from framejit.guards.sources import const_source
from framejit.values.arrays.ndarray import refused
from framejit.values.constant import ConstantValue
from framejit.values.tensors.tensor import TensorValue

if TYPE_CHECKING:
    from framejit.values.context import Frame

_MESSAGE = "a floating-point error, of which numpy may warn"


def _handled(_: Any) -> tuple[bool, bool]:
    """Whether numpy looks for results too large, undefined or divided by zero, and whether for those that are too
    small."""
    now = np.geterr()
    return any(now[kind] != "ignore" for kind in ("divide", "over", "invalid")), now["under"] != "ignore"


def _looks(_: Any) -> bool:
    return _handled(None) == (True, False)


def _does_not_look(_: Any) -> bool:
    return _handled(None) == (False, False)


def looks_for_errors(frame: Frame) -> bool:
    """Whether numpy looks for floating-point errors; guarded."""
    looks, small = _handled(None)
    if small:
        raise refused("np.errstate(under=...)")
    frame.capture.add_guard(const_source(np.geterr), native.C_PY, _looks if looks else _does_not_look)
    return looks


def check_finite(frame: Frame, result: TensorValue, covers: tuple[TensorValue, ...] = ()) -> None:
    """Have the graph raise if a result has an inf or nan. What `covers` has is finite if the result is, and need not be
    looked at itself."""
    if not result.fake.is_floating_point() or not looks_for_errors(frame):
        return
    graph = frame.capture.graph
    for tensor in covers:
        for node in graph.finite_checks.pop(tensor.node, ()):
            graph.graph.erase_node(node)
    check_all(frame, graph.call(torch.isfinite, [result]), result)


def check_all(frame: Frame, condition: Any, of: TensorValue | None = None, message: str = _MESSAGE) -> None:
    """Have the graph raise unless all elements of a tensor of bools are True."""
    graph = frame.capture.graph
    every = graph.call(torch.all, [condition])
    graph.call(torch._assert_async, [every, ConstantValue(message)])
    if of is not None:
        assert isinstance(every, TensorValue)
        graph.finite_checks[of.node] = (next(iter(reversed(graph.graph.nodes))), every.node, condition.node)
