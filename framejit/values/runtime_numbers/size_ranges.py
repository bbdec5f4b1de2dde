"""Floats that rise or fall with one size, and between which sizes an answer about such a float is what it is now.

Python's operations on floats are rounded, but where the exact ones rise, so do they (sums, products and quotients with
a number, roots), or as good as (powers, logarithms: for sizes that exist, neighbours lie further apart than these
err). So the sizes for which `n * 0.7 > 5` holds lie next to one another, and their ends are found by bisection, with
the very operations that the program would carry out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from framejit.late_dataclass import dataclass
from framejit.values.sym_int import SymIntValue

_GREATEST_END: Final = 1 << 40
"""Ends beyond are not trusted: floats of neighbouring ints may be one float there."""
_NEIGHBOURS: Final = 3
"""So many sizes on both sides of an end are looked at."""


@dataclass(frozen=True)
class OneSize:
    """`function` of `size`, which surely lies in `low` to `high`; it rises everywhere there, or falls everywhere."""

    size: SymIntValue
    function: Callable[[int], float]
    low: int
    high: int

    def then(self, function: Callable[[Any], float]) -> OneSize:
        """`function`, which rises or falls, of the float."""
        before = self.function
        return OneSize(self.size, lambda size: function(before(size)), self.low, self.high)

    def keeps(self, answer: Callable[[float], Any]) -> bool:
        """Whether conditions were made under which `answer` of the float stays what it is now. The answers must change
        in one direction as the float rises."""
        hint = self.size.size.node.hint
        now = answer(self.function(hint))

        def same(size: int) -> bool:
            try:
                return bool(answer(self.function(size)) == now)
            except (ArithmeticError, ValueError):  # conditions that were made before leave such sizes out
                return False

        last, first = self._end(same, hint, self.high), self._end(same, hint, self.low)
        if last is None or first is None:
            return False
        return bool(self.size.size <= last) and bool(self.size.size >= first)

    def _end(self, same: Callable[[int], bool], inside: int, outside: int) -> int | None:
        """The last size on the way from one to the other for which it is the same; None where that is not to be
        trusted."""
        if same(outside):
            return outside
        step = 1 if outside > inside else -1
        while abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            if same(middle):
                inside = middle
            else:
                outside = middle
        beyond = [outside + step * n for n in range(_NEIGHBOURS)]
        is_clear = not any(same(size) for size in beyond if self.low <= size <= self.high)
        return inside if abs(inside) <= _GREATEST_END and is_clear else None
