"""Which calls are verified, and what stands in for a dispatcher or a compiled graph so that they are."""
from __future__ import annotations

import functools
import random
import threading
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from framejit import _native
from framejit._native import Dispatcher
from framejit.verify import graph_runs
from framejit.verify.report import Reporter
from framejit.verify.shadow import Shadow, check_graph

if TYPE_CHECKING:
    from framejit.options import Options


class Sample:
    """Chooses a fraction of calls: the first, which is the one most likely to be wrong, and then by chance, out of step
    with the program."""

    def __init__(self, fraction: float) -> None:
        self._fraction, self._any, self._lock = fraction, False, threading.Lock()
        self._random = random.Random()

    def __call__(self) -> bool:
        with self._lock:
            first, self._any = not self._any, True
            return first or self._random.random() < self._fraction


def verifying(dispatcher: Dispatcher, options: Options) -> FunctionType:
    """A function that calls through the dispatcher and verifies a sample of the calls."""
    fn: Any = dispatcher.function
    shadow, sample = Shadow(dispatcher, fn, options), Sample(options.verify)

    @functools.wraps(fn)
    def verified(*args: Any, **kwargs: Any) -> Any:
        if _native.disabled() or graph_runs.inside():
            return dispatcher(*args, **kwargs)
        with graph_runs.dispatched():
            return shadow.call(args, kwargs) if sample() else dispatcher(*args, **kwargs)

    made: Any = verified
    made._framejit_verified, made.options = fn, options
    return cast(FunctionType, made)


def watched_graph(
    compiled: Callable[..., Any], graph: graph_runs.Graph, place: tuple[str, str, int]
) -> Callable[..., Any]:
    """A compiled graph that can be verified; `place` is function, file and line of the frame it belongs to."""
    reporter = Reporter(*place)
    return graph_runs.watched(compiled, graph, Sample(graph.options.verify), functools.partial(check_graph, reporter))
