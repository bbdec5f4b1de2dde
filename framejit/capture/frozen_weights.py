"""`optimize(freeze=True)`: which weights a graph may take to stay what they are, the guards for that, and what becomes of entries whose weights changed."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.backends.frozen_weights import FrozenWeight, freeze, takes_frozen_weights
from framejit.config import config
from framejit.guards.sources import DictSource, KeySource, Source

if TYPE_CHECKING:
    from framejit.capture.capture import Capture
    from framejit.capture.frame_compilation import FrameCompilation
    from framejit.values.tensor import TensorValue

_TABLES = ("_parameters", "_buffers")
_CLASSES = (torch.Tensor, torch.nn.Parameter)


@dataclass(frozen=True)
class Content:
    """What a weight was when a graph was compiled that holds something computed from it. The weight itself is not kept alive."""

    weight: weakref.ref[torch.Tensor]
    version: int
    address: int

    def is_outdated(self) -> bool:
        """Whether it can never be this again: versions only grow."""
        weight = self.weight()
        return weight is None or weight._version != self.version


@dataclass(frozen=True)
class Candidate:
    """A weight that the backend may fold."""

    source: Source
    tensor: torch.Tensor
    version: int
    address: int
    mark: FrozenWeight


def candidates(compilation: FrameCompilation, capture: Capture, inputs: Sequence[TensorValue], examples: Sequence[torch.Tensor]) -> list[Candidate]:
    """Marks the inputs of a finished graph whose content its backend may use: none where gradients are needed, or weights have changed too often."""
    if not _may_freeze(compilation) or _needs_gradients(capture.graph.graph):
        return []
    written = {id(value) for value in capture.effects.written_tensors.values()}
    found = []
    for value, tensor in zip(inputs, examples, strict=True):
        if value.source is not None and _is_weight(value.source) and id(value) not in written and _keeps_count(tensor):
            found.append(Candidate(value.source, tensor, tensor._version, tensor.data_ptr(), freeze(value.node)))
    return found


def guard_folded(capture: Capture, weights: list[Candidate]) -> tuple[Candidate, ...]:
    """Guards what the backend has made use of, and tells it that this is all; gives these weights."""
    folded = tuple(weight for weight in weights if weight.mark.folded)
    for weight in weights:
        weight.mark.settled = True
    for weight in folded:
        capture.add_guard(weight.source, native.C_ID, weight.tensor)
        capture.add_guard(weight.source, native.C_VERSION, (weight.version, weight.address))
    return folded


def contents(weights: Sequence[Candidate], owner: Any) -> tuple[Content, ...]:
    """What the entry of `owner` that was made for folded weights keeps of them. When one dies, the entry goes, and with it what was computed."""
    where = weakref.ref(owner)

    def died(_: weakref.ref[torch.Tensor]) -> None:
        cache = where()
        for entry in cache.entries if cache is not None else ():
            if entry.guards.expired:
                _remove(cache, entry)

    return tuple(Content(weakref.ref(weight.tensor, died), weight.version, weight.address) for weight in weights)


def drop_outdated(owner: Any) -> int:
    """Drops entries for weights that were written into since, which would only take memory; how often weights have changed so far."""
    entries = owner.entries
    outdated = [entry for entry in entries if any(content.is_outdated() for content in entry.tag.frozen)]
    for entry in outdated:
        _remove(owner, entry)
    return max((entry.tag.weight_changes for entry in entries), default=0) + bool(outdated)


def _remove(owner: Any, entry: native.Entry) -> None:
    try:
        owner.remove_entry(entry)
    except ValueError:  # another thread was quicker
        pass


def _may_freeze(compilation: FrameCompilation) -> bool:
    """Whether the entry to be made may be for the weights' present content. The last one that the limit allows is for any."""
    options, made = compilation.options, len(compilation.owner.entries) + compilation.weight_changes
    return options.freeze and takes_frozen_weights(options.backend) and (made == 0 or made < config.recompile_limit - 1)


def _needs_gradients(graph: torch.fx.Graph) -> bool:
    return any(_requires_grad(node.meta.get("val")) for node in graph.nodes if node.op not in ("placeholder", "output"))


def _requires_grad(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_requires_grad, value))
    return isinstance(value, torch.Tensor) and value.requires_grad


def _is_weight(source: Source) -> bool:
    table = source.origin if isinstance(source, KeySource) else None
    return isinstance(table, KeySource) and table.key.value in _TABLES and isinstance(table.origin, DictSource)


def _keeps_count(tensor: torch.Tensor) -> bool:
    """Whether writes into it can be seen: tensors made in inference mode do not count them."""
    return type(tensor) in _CLASSES and tensor.layout is torch.strided and not tensor.is_inference() and tensor.device.type in ("cpu", "cuda")
