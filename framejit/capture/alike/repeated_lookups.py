"""Attributes that a class looks up in its own way, once more.

Configurations of models answer each question by a `__getattribute__` in Python, and are asked the same for each layer.
Interpreting it again would find the same: what it looked at is guarded, and captured code has changed nothing that it
could come to see since. That is what layers alike rest on, too (`layers_alike.py`), and it is known in the same way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from framejit import _native as native
from framejit.capture.alike.layers_alike import PLAIN
from framejit.values.base import Value
from framejit.values.constant import ConstantValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture
    from framejit.capture.side_effects import InSight
    from framejit.guards.sources import Source

class _Lookup(NamedTuple):
    owner: Value
    """Held, as it is known by its id."""
    result: ConstantValue
    state: native.State
    in_sight: InSight
    reached: list[Source]
    """The sources that others begin with through which it came to what was known already."""


class RepeatedLookups:
    """Lookups of one capture that have given constants."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._known: dict[tuple[int, str], _Lookup] = {}
        self._in_sight: tuple[int, InSight | None] = (-1, None)

    def forget(self) -> None:
        """Interpret each lookup again."""
        self._known.clear()

    def get(self, owner: Value, name: str, look: Callable[[], Value]) -> Value:
        """The attribute of an object that was there before the capture; `look` interprets what finds it."""
        capture = self._capture
        if owner.source is None or capture.journal.is_kept or not capture.may_stamp():
            return look()
        in_sight = self._changes_in_sight()
        if in_sight is None:
            return look()
        known = self._known.get((id(owner), name))
        if known is not None and in_sight.is_as(known.in_sight) and native.state_matches(known.state):
            for source in known.reached:
                capture.layers.reached(source)
            return known.result
        state, version, n_ops = native.snapshot_state(), capture.effects.version, capture.graph.n_ops
        left, seq = capture.left_behind(), capture.seq
        result = look()
        if (
            type(result) is ConstantValue
            and type(result.value) in PLAIN
            and (version, n_ops, left) == (capture.effects.version, capture.graph.n_ops, capture.left_behind())
        ):
            reached = capture.layers.reached_since(seq)
            self._known[id(owner), name] = _Lookup(owner, result, state, in_sight, reached)
        return result

    def _changes_in_sight(self) -> InSight | None:
        effects = self._capture.effects
        version, found = self._in_sight
        if version != effects.version:
            found = effects.in_sight()
            self._in_sight = effects.version, found
        return found
