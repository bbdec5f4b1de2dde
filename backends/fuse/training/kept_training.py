"""Graphs that gradients are wanted of, on the disk: another process runs them without recording, parting or lowering.

What was compiled is an entry of the disk cache whose key is a hash of its content. What comes to be known while it runs
is another one, which is written again: how the first runs went, and which backwards were compiled for gradients that
came otherwise than usual. These are entries of their own.
"""

from __future__ import annotations

import marshal
import sys
import weakref
from collections.abc import Callable
from dataclasses import field
from itertools import zip_longest
from typing import Any, Final

from framejit.backends.fuse.account.compiled_graph import CompiledGraph, name_of, remember
from framejit.backends.fuse.account.telling import tell_training
from framejit.backends.fuse.autograd_nodes.backward import Backward, Given
from framejit.backends.fuse.autograd_nodes.differentiable import Differentiable, OtherBackwards
from framejit.backends.fuse.autograd_nodes.half import Trial
from framejit.backends.fuse.autograd_nodes.segment_nodes import CompiledSegment
from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.kernel_record import BadRecord
from framejit.backends.fuse.cache.plan_key import NotCacheable
from framejit.backends.fuse.training.training_record import TrainingReader, TrainingWriter
from framejit.backends.graph_identity import LAUNCH_GRAPHS
from framejit.environment.collector import resting
from framejit.events import emit
from framejit.late_dataclass import dataclass

KIND: Final = "training"
"""The kind of entries in the disk cache that never change."""
LEARNT: Final = "learnt"
"""The kind of those that say what came to be known."""
_CANONICAL: Final = 2
"""The version of marshal's format that is the same for equal objects, however often these are referred to."""


def keep_training(graph: Differentiable) -> str:
    """Keep a graph from now on, with what comes to be known of it. Gives the key that it is found by. Raises
    NotCacheable."""
    if graph.stages:
        raise NotCacheable("its backward is divided for DistributedDataParallel")
    module = graph.accounts[0].module()
    if module is not None and module.meta.get(LAUNCH_GRAPHS):
        raise NotCacheable("its graph is compiled for this process only")
    key = _put(TrainingWriter().graph(graph))
    _Keeper(graph, key).update()
    return key


def find_training(key: str, module: Any, graph_id: int, give_up: Callable[[], None]) -> Differentiable:
    """The graph that is kept under a key. `module` has its own operations as `forward`, and `meta`. `give_up` is called
    where gradients come that no backward is kept for.

    Raises NotCacheable where it is gone or not for this process, and whatever data that is none leads to.
    """
    ddp = sys.modules.get("torch.nn.parallel.distributed")
    if ddp is not None and ddp.DistributedDataParallel._get_active_ddp_module() is not None:
        raise NotCacheable("its backward is to be divided for DistributedDataParallel")
    data, learnt = _got(key), _read_learnt(key)
    if learnt.divided and learnt.divided != key:
        return find_training(learnt.divided, module, graph_id, give_up)
    account = CompiledGraph(name_of(graph_id, module.meta), weakref.ref(module), graph_id)
    with resting():
        reader = TrainingReader(account, module)
        made = reader.graph(data, learnt.halves, _KeptBackwards(reader, learnt.others, give_up))
    remember(module, account)
    for each in made.accounts:
        each.run = made
    tell_training(made.accounts, made.kept, made.computed_again, made.apart)
    _Keeper(made, key).listen(made)
    return made


def _put(data: Any) -> str:
    content = marshal.dumps(data, _CANONICAL)
    key = key_of(KIND, content)
    disk_cache.put(KIND, key, content)
    return key


def _got(key: str) -> Any:
    """Raises NotCacheable."""
    content = disk_cache.get(KIND, key)
    if content is None or key_of(KIND, content) != key:
        raise NotCacheable("its halves are not in the cache")
    return marshal.loads(content)


@dataclass
class _Learnt:
    """What is known of a graph since it was run."""

    halves: list[Trial] = field(default_factory=list)
    """How the first run of each half went, in order."""
    others: dict[tuple[int, Given], tuple[str, Trial]] = field(default_factory=dict)
    """By the segment's number and the gradients that came: the key of the backward for them, empty for the usual one,
    and how its first run went."""
    divided: str = ""
    """The key of the graph with a backward for each segment, where gradients were asked for that the one from the loss
    does not give; empty where none were."""


def _read_learnt(key: str) -> _Learnt:
    """What was kept; nothing where there is nothing, or nothing of use."""
    data = disk_cache.get(LEARNT, key)
    learnt = _Learnt()
    if data is None:
        return learnt
    try:
        halves, others, divided = marshal.loads(data)
        learnt.divided = str(divided)
        learnt.halves = [_trial(*half) for half in halves]
        learnt.others = {(number, given): (str(found), _trial(*trial)) for number, given, found, trial in others}
    except Exception as e:  # without it the first runs are tried again, as in the process that wrote it
        emit("cache", what=LEARNT, hit=False, key=key, reason=f"what was found can't be used: {type(e).__name__}: {e}")
        return _Learnt()
    return learnt


def _trial(is_over: Any, differences: Any) -> Trial:
    if type(is_over) is not bool or not all(type(line) is str for line in differences):
        raise BadRecord("that is no outcome of a first run")
    return Trial(is_over, [*differences])


def _better(ours: Trial, theirs: Trial | None) -> Trial:
    """What is known of a first run."""
    return theirs if theirs is not None and theirs.is_over and not ours.is_over else ours


class _Keeper:
    """Writes down what comes to be known of a graph while it runs."""

    def __init__(self, graph: Differentiable, key: str) -> None:
        self._graph, self._key = weakref.ref(graph), key

    def listen(self, graph: Differentiable) -> None:
        """Write when more is known."""
        graph.others.tell = self.update
        for half in (*graph.halves(), *(found.half for found in graph.others.known.values())):
            half.trial.tell = self.update

    def update(self) -> None:
        """Write down what is known by now, here or by other processes; whatever goes wrong, the graph serves here. Of
        two processes that do so at once, one may be in vain."""
        graph = self._graph()
        if graph is None:
            return
        try:
            learnt = _read_learnt(self._key)
            trials = [half.trial for half in graph.halves()]
            halves = [_better(ours, theirs) for ours, theirs in zip_longest(trials, learnt.halves[: len(trials)])]
            for (number, given), found in graph.others.known.items():
                segment = graph.segments[number]
                is_usual = isinstance(segment, CompiledSegment) and found is segment.usual_backward()
                key = "" if is_usual else _put(TrainingWriter().backward(found))
                _, known = learnt.others.get((number, given), ("", None))
                learnt.others[number, given] = key, _better(found.half.trial, known)
            others = [[*which, key, _written(trial)] for which, (key, trial) in learnt.others.items()]
            divided = graph.others.divided_graph
            if isinstance(divided, Differentiable):
                learnt.divided = keep_training(divided)
            disk_cache.put(LEARNT, self._key, marshal.dumps([[*map(_written, halves)], others, learnt.divided]))
            self.listen(graph)
        except Exception as e:  # it serves here, whatever is wrong with keeping it
            emit("cache", what=LEARNT, hit=False, key=self._key, reason=f"not kept: {type(e).__name__}: {e}")


def _written(trial: Trial) -> list[Any]:
    return [trial.is_over, trial.differences]


class _KeptBackwards(OtherBackwards):
    """The backwards that are on the disk for gradients that come otherwise than usual."""

    def __init__(
        self, reader: TrainingReader, others: dict[tuple[int, Given], tuple[str, Trial]], give_up: Callable[[], None]
    ) -> None:
        super().__init__()
        self._reader, self._others, self._give_up = reader, others, give_up

    def divided(self, graph: Differentiable) -> Callable[..., tuple[Any, ...]]:
        """The operations: from here on the function is captured in this process."""
        self._give_up()
        return graph.as_aten

    def find(self, segment: CompiledSegment, given: Given) -> Backward | None:
        """The backward for these; None for gradients that no process has met, from where on the function is captured
        in this one."""
        if (segment.number, given) not in self._others:
            self._give_up()
            return None
        key, trial = self._others[segment.number, given]
        try:
            found = self._reader.backward(_got(key), segment.number, trial) if key else segment.usual_backward()
        except Exception as e:  # in the midst of the program's backward: the graph is run again for it
            reason = f"what was found can't be used: {type(e).__name__}: {e}"
            emit("cache", what=KIND, hit=False, key=key, reason=reason)
            self._give_up()
            return None
        self.note(segment, given, found)
        return found
