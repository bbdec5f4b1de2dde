"""Iterators that the program made: those over lists and tuples are followed, others are left to Python."""

from __future__ import annotations

import itertools
import types
from typing import TYPE_CHECKING, Any

from framejit import _native as native
from framejit.guards.sources import CallSource
from framejit.values.base import Value
from framejit.values.containers.iterator_values import (
    ItemsIterator,
    OpaqueIterator,
    iterated_sequence,
    iterator_position,
    iterator_state,
)
from framejit.values.containers.sequence import SequenceValue
from framejit.values.wrap import wrap, wraps

if TYPE_CHECKING:
    from framejit.guards.sources import Source
    from framejit.values.context import Capture

_ITERABLES: tuple[Any, ...] = ([], (), {}, {}.keys(), {}.values(), {}.items(), set(), "", b"", range(0))
_TOOLS = (itertools.chain, itertools.islice, itertools.count, itertools.repeat, itertools.cycle, itertools.product)


@wraps(*(type(iter(x)) for x in _ITERABLES), *_TOOLS, enumerate, zip, map, filter, reversed, types.GeneratorType)
def _existing_iterator(capture: Capture, obj: Any, source: Source) -> Value:
    capture.add_guard(source, native.C_TYPE, type(obj))
    if type(obj) in (type(iter([])), type(iter(()))):
        sequence, position = iterator_state(obj)
        where = CallSource(source, iterator_position)
        # A position that differs from call to call is that of a loop with a break in its body: the loop stays in
        # Python.
        if where.name() not in capture.changing and position is not None:
            capture.add_guard(where, native.C_EQUALS, position)
            known = wrap(capture, sequence, CallSource(source, iterated_sequence))
            if isinstance(known, SequenceValue):
                return ItemsIterator(known, type(obj), position, source)
    return OpaqueIterator(obj, source)
