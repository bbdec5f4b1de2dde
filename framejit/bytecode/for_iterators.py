"""How a for loop keeps its iterator on the stack, and where FOR_ITER leads when that is exhausted: in each version
another way."""

from __future__ import annotations

import sys

_VERSION = sys.version_info[:2]

# From 3.15 on GET_ITER leaves a pair: an iterator and NULL, or, for the real interpreter only, a list or tuple and an
# index.
ITERATOR_SLOTS = 2 if _VERSION >= (3, 15) else 1
HAS_NULL = ITERATOR_SLOTS == 2

# What stands where FOR_ITER leads to, and is over and done with once the iterator is exhausted: the real FOR_ITER skips
# it, all but POP_ITER.
CLEARS_AWAY: tuple[str, ...]
if _VERSION < (3, 12):
    CLEARS_AWAY = ()
elif _VERSION < (3, 13):
    CLEARS_AWAY = ("END_FOR",)
elif _VERSION < (3, 14):
    CLEARS_AWAY = ("END_FOR", "POP_TOP")
else:
    CLEARS_AWAY = ("END_FOR", "POP_ITER")
