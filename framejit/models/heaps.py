"""Heaps and sorted lists: heapq and bisect, by the comparisons that CPython makes, in their order."""

from __future__ import annotations

import bisect
import heapq
from typing import Any

from framejit.models.absent import message
from framejit.models.model_registry import NEED_ALL_ITEMS, models

_ARGUMENTS: dict[str, tuple[int, ...]] = {
    "heapify": (), "heappush": (0,), "heappop": (), "heapreplace": (0,), "heappushpop": (0,),
}
_EMPTY = message(heapq.heappop, [])
_NO_LIST = {
    name: message(getattr(heapq, name), None, *others).removesuffix("None").removesuffix("NoneType")
    for name, others in _ARGUMENTS.items()
}
_NEGATIVE = message(bisect.bisect_left, [], 0, -1)


def _rise(heap: Any, start: int, at: int) -> None:
    """Exchange the item at a place with its parents, up to `start`, while it is less."""
    while at > start:
        parent = (at - 1) >> 1
        if not heap[at] < heap[parent]:
            break
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def _sink(heap: Any, at: int) -> None:
    """Exchange the item at a place with the lesser child down to a leaf, and let it rise from there."""
    start, end = at, len(heap)
    while at < end >> 1:
        child = 2 * at + 1
        if child + 1 < end and not heap[child] < heap[child + 1]:
            child += 1
        heap[at], heap[child] = heap[child], heap[at]
        at = child
    _rise(heap, start, at)


@models(heapq.heapify)
def heapify(heap: Any, /) -> None:
    if not isinstance(heap, list):
        raise TypeError(_NO_LIST["heapify"] + type(heap).__name__)
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, at)


@models(heapq.heappush)
def heappush(heap: Any, item: Any, /) -> None:
    if not isinstance(heap, list):
        raise TypeError(_NO_LIST["heappush"] + type(heap).__name__)
    heap.append(item)
    _rise(heap, 0, len(heap) - 1)


@models(heapq.heappop)
def heappop(heap: Any, /) -> Any:
    if not isinstance(heap, list):
        raise TypeError(_NO_LIST["heappop"] + type(heap).__name__)
    if not heap:
        raise IndexError(_EMPTY)
    last = heap.pop()
    if not heap:
        return last
    least, heap[0] = heap[0], last
    _sink(heap, 0)
    return least


@models(heapq.heapreplace)
def heapreplace(heap: Any, item: Any, /) -> Any:
    if not isinstance(heap, list):
        raise TypeError(_NO_LIST["heapreplace"] + type(heap).__name__)
    if not heap:
        raise IndexError(_EMPTY)
    least, heap[0] = heap[0], item
    _sink(heap, 0)
    return least


@models(heapq.heappushpop)
def heappushpop(heap: Any, item: Any, /) -> Any:
    if not isinstance(heap, list):
        raise TypeError(_NO_LIST["heappushpop"] + type(heap).__name__)
    if not heap or not heap[0] < item:
        return item
    least, heap[0] = heap[0], item
    _sink(heap, 0)
    return least


@models(bisect.bisect_right)
def bisect_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    if lo < 0:
        raise ValueError(_NEGATIVE)
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if x < (a[middle] if key is None else key(a[middle])):
            hi = middle
        else:
            lo = middle + 1
    return lo


@models(bisect.bisect_left)
def bisect_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> Any:
    if lo < 0:
        raise ValueError(_NEGATIVE)
    if hi is None:
        hi = len(a)
    while lo < hi:
        middle = (lo + hi) // 2
        if (a[middle] if key is None else key(a[middle])) < x:
            lo = middle + 1
        else:
            hi = middle
    return lo


@models(bisect.insort_right)
def insort_right(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_right(a, x if key is None else key(x), lo, hi, key=key), x)


@models(bisect.insort_left)
def insort_left(a: Any, x: Any, lo: Any = 0, hi: Any = None, *, key: Any = None) -> None:
    a.insert(bisect_left(a, x if key is None else key(x), lo, hi, key=key), x)


NEED_ALL_ITEMS.update((heapq.heapify, heapq.heappush, heapq.heappop, heapq.heapreplace, heapq.heappushpop))
NEED_ALL_ITEMS.update((bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right))
