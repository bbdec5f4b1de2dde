"""A program with a functools.lru_cache, as plain Python and optimized."""

import torch

import framejit
from framejit.events import subscribe


def outcome(fn, *args):
    try:
        result = fn(*args)
    except Exception as e:
        return type(e), str(e)
    return result.tolist() if isinstance(result, torch.Tensor) else result


class Twins:
    """A program as plain Python and optimized, each with a cache and a log of its own."""

    def __init__(self, make):
        self.plain, self.plain_cached, self.plain_log = self._made(make)
        fn, self.cached, self.log = self._made(make)
        self.optimized = framejit.optimize(fn, backend="eager")

    @staticmethod
    def _made(make):
        log = []
        fn, cached = make(log)
        return fn, cached, log

    def call(self, *args):
        assert outcome(self.optimized, *args) == outcome(self.plain, *args)
        assert self.optimized.entries and not self.optimized.skip  # it was captured, not left to plain Python
        self.check()

    def each(self, action):
        action(self.plain_cached)
        action(self.cached)

    def check(self):
        assert self.log == self.plain_log
        assert self.cached.cache_info() == self.plain_cached.cache_info()


def breaks_of(twins, *args):
    """How many graph breaks capturing this call has."""
    seen = []
    unsubscribe = subscribe(lambda event: seen.append(event) if event.kind == "graph_break" else None)
    try:
        twins.call(*args)
    finally:
        unsubscribe()
    return len(seen)
