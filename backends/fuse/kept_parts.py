"""Graphs that are compiled in parts, for captures that are kept: what runs the parts is kept as text, and how each part
is found is an entry of the disk cache of its own, written when the part was compiled."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, Final

import torch

from framejit.backends.fuse.account.compiled_graph import PART, CompiledGraph, recall_all
from framejit.backends.fuse.cache import disk_cache
from framejit.backends.fuse.cache.cache_key import key_of
from framejit.backends.fuse.cache.plan_key import NotCacheable
from framejit.backends.fuse.in_parts import IN_ALL_PROCESSES, PART_NAME, GraphInParts, LazyGraph, function_of
from framejit.backends.graph_identity import identify
from framejit.events import emit

_KIND: Final = "part"

KeptForm = Callable[[Callable[..., Any]], str]
FromKeptForm = Callable[[str, Any, int, Callable[[], None]], Callable[..., Any]]


def keep_parts(graph: GraphInParts, kept_form: KeptForm) -> list[Any]:
    """Keep each part from when it is compiled. Gives what the graph is found by. Raises NotCacheable where what
    stands between parts is not the same in all processes."""
    known = {*IN_ALL_PROCESSES, "run", "__builtins__", *(f"{PART_NAME}{number}" for number in range(len(graph.parts)))}
    if not known.issuperset(graph.namespace):
        raise NotCacheable("what stands between its parts is of this process")
    name = secrets.token_hex(16)
    for number, part in enumerate(graph.parts):
        part.tell = partial(_keep_part, part, _key(name, number), kept_form)
        if part.run is not None:
            part.tell(part.run)
    return [name, len(graph.parts), graph.text]


def _keep_part(part: LazyGraph, key: str, kept_form: KeptForm, run: Callable[..., Any]) -> None:
    try:
        form = kept_form(run)
    except NotCacheable as e:
        emit("cache", what=_KIND, hit=False, key=key, reason=f"not kept: {e}")
        return
    disk_cache.put(_KIND, key, json.dumps([part.in_inference_mode, form]).encode())


def _key(name: str, number: int) -> str:
    return key_of(_KIND, name, number)


class FoundInParts:
    """A graph in parts that another process has compiled."""

    def __init__(self, eager: Callable[..., Any], run: Callable[..., Any], parts: list[Callable[..., Any]]) -> None:
        self.eager, self.run, self._parts = eager, run, parts

    def __call__(self, *inputs: torch.Tensor) -> Any:
        return self.run(*inputs)

    def graphs(self) -> list[CompiledGraph]:
        """The accounts of what was compiled."""
        return [graph for part in self._parts for graph in recall_all(part)]


def find_parts(
    said: list[Any], module: Any, graph_id: int, give_up: Callable[[], None], from_kept_form: FromKeptForm
) -> FoundInParts:
    """The graph that `keep_parts` gave this for. `module.parts` have the operations of each part as `forward`. Raises
    NotCacheable where a part is gone, or was never kept."""
    name, count, text = said
    forms = [disk_cache.get(_KIND, _key(str(name), number)) for number in range(int(count))]
    if len(module.parts) != len(forms):
        raise NotCacheable("its parts are not those of its graph")
    parts: list[Callable[..., Any]] = []
    for number, (form, part) in enumerate(zip(forms, module.parts)):
        if form is None:
            raise NotCacheable("a part of it is not in the cache")
        identify(part, graph_id)
        part.meta[PART] = number
        mode, written = json.loads(form)
        with nullcontext() if mode == torch.is_inference_mode_enabled() else torch.inference_mode(mode):
            parts.append(from_kept_form(written, part, graph_id, give_up))
    namespace = {**IN_ALL_PROCESSES, **{f"{PART_NAME}{number}": part for number, part in enumerate(parts)}}
    return FoundInParts(module.forward, function_of(str(text), namespace), parts)
