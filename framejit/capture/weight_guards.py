"""`optimize(freeze=True)`: which weights a graph may take to stay what they are, the guards for that, and what becomes
of entries whose weights changed.

A weight is guarded by identity, version and address. Neither is enough alone: `data = other` leaves the version, and
`nn.Parameter(weight.data)` begins to count anew in the same memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from framejit import _native as native
from framejit.backends.frozen_weights import FrozenWeight, freeze, takes_frozen_weights
from framejit.config import config
from framejit.guards.sources import DictSource, KeySource, Source, key_source
from framejit.late_dataclass import dataclass
from framejit.values.objects.module import ModuleValue

if TYPE_CHECKING:
    from framejit.capture.capture import Capture
    from framejit.capture.frame_compilation import FrameCompilation
    from framejit.values.tensors.tensor import TensorValue

_TABLES = ("_parameters", "_buffers")
_CLASSES = (torch.Tensor, torch.nn.Parameter)
_COUNT = "num_batches_tracked"
_DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class WeightVersion:
    """The version and address of a weight at the time when a graph was compiled that holds something computed from it.
    The weight itself is not kept alive."""

    weight: weakref.ref[torch.Tensor]
    version: int
    address: int

    def is_outdated(self) -> bool:
        """Whether it can never be this again: versions only grow."""
        weight = self.weight()
        return weight is None or weight._version != self.version


@dataclass(frozen=True)
class Seen:
    """A tensor that tells whether a weight is still what it was."""

    source: Source
    tensor: torch.Tensor
    version: int
    address: int


@dataclass(frozen=True)
class Candidate:
    """A weight that the backend may fold. `seen` has itself, and what counts the writes that it does not count."""

    seen: tuple[Seen, ...]
    mark: FrozenWeight


def candidates(
    compilation: FrameCompilation, capture: Capture, inputs: Sequence[TensorValue], examples: Sequence[torch.Tensor]
) -> list[Candidate]:
    """Marks the inputs of a finished graph whose content its backend may use: none where gradients are needed, or
    weights have changed too often."""
    if not _may_freeze(compilation) or _needs_gradients(capture.graph.graph):
        return []
    written = {id(value) for value in capture.effects.written_tensors.values()}
    modules = {value.source: value.obj for _, value in capture.objects() if isinstance(value, ModuleValue)}
    sharing = _by_memory(inputs, examples)
    found = []
    for value, tensor in zip(inputs, examples, strict=True):
        table = _table(value.source)
        if table is None or id(value) in written or not _keeps_count(tensor):
            continue
        assert isinstance(value.source, KeySource)
        seen = sharing[tensor.untyped_storage().data_ptr()]
        if seen is None:
            continue
        if _is_statistic(value):
            owner = modules.get(table.origin.origin) if isinstance(table.origin, DictSource) else None
            count = owner._buffers.get(_COUNT) if owner is not None else None
            if count is None or not _keeps_count(count):
                continue
            seen = [*seen, _seen(key_source(table, _COUNT), count)]
        found.append(Candidate(tuple(seen), freeze(value.node)))
    return found


def guard_folded(capture: Capture, weights: list[Candidate]) -> tuple[Seen, ...]:
    """Guards what the backend has made use of, and tells it that this is all; gives what is guarded."""
    for weight in weights:
        weight.mark.decided = True
    folded = tuple({seen.source: seen for weight in weights if weight.mark.folded for seen in weight.seen}.values())
    for seen in folded:
        capture.add_guard(seen.source, native.C_ID, seen.tensor)
        capture.add_guard(seen.source, native.C_VERSION, (seen.version, seen.address))
    return folded


def weight_versions(weights: Sequence[Seen], owner: Any) -> tuple[WeightVersion, ...]:
    """Weak references to folded weights with their versions, for the entry of `owner` that is made from them. When one
    of them dies, the entry goes, and with it what was computed."""
    where = weakref.ref(owner)

    def died(_: weakref.ref[torch.Tensor]) -> None:
        cache = where()
        for entry in cache.entries if cache is not None else ():
            if entry.guards.expired:
                _remove(cache, entry)

    return tuple(WeightVersion(weakref.ref(weight.tensor, died), weight.version, weight.address) for weight in weights)


def drop_outdated(owner: Any) -> int:
    """Drops entries for weights that were written into since, which would only take memory; how often weights have
    changed so far."""
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
    """Whether the entry to be made may be for the weights' present content. The last one that the limit allows is for
    any."""
    options, made = compilation.options, len(compilation.owner.entries) + compilation.weight_changes
    return options.freeze and takes_frozen_weights(options.backend) and (made == 0 or made < config.recompile_limit - 1)


def _needs_gradients(graph: torch.fx.Graph) -> bool:
    return any(_requires_grad(node.meta.get("val")) for node in graph.nodes if node.op not in ("placeholder", "output"))


def _requires_grad(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_requires_grad, value))
    # a view of a parameter that is made under no_grad says so too, and has no history
    return isinstance(value, torch.Tensor) and value.requires_grad and not value.is_leaf


def _by_memory(inputs: Sequence[TensorValue], examples: Sequence[torch.Tensor]) -> dict[int, list[Seen] | None]:
    """By memory the weights that lie in it: tied by way of `data`, each has a count of its own. None where an input
    that is no weight shares it."""
    found: dict[int, list[Seen] | None] = {}
    for value, tensor in zip(inputs, examples, strict=True):
        if tensor.layout is torch.strided and tensor.device.type in _DEVICES:
            memory = tensor.untyped_storage().data_ptr()
            others = found.get(memory, [])
            if value.source is None or _table(value.source) is None or not _keeps_count(tensor) or others is None:
                found[memory] = None
            else:
                found[memory] = [*others, _seen(value.source, tensor)]
    return found


def _table(source: Source | None) -> KeySource | None:
    """The module's table of parameters or buffers that a source reads; None for any other source."""
    table = source.origin if isinstance(source, KeySource) else None
    return (
        table
        if isinstance(table, KeySource) and table.key.value in _TABLES and isinstance(table.origin, DictSource)
        else None
    )


def _is_statistic(value: TensorValue) -> bool:
    """Whether a batch norm may write it in training, which torch does not count as a write; nn's own modules count
    their batches, though."""
    assert isinstance(value.source, KeySource)
    used = any("batch_norm" in str(getattr(user.target, "__name__", user.target)) for user in value.node.users)
    return value.cls is torch.Tensor and (used or str(value.source.key.value).startswith("running_"))


def _seen(source: Source, tensor: torch.Tensor) -> Seen:
    return Seen(source, tensor, tensor._version, tensor.data_ptr())


def _keeps_count(tensor: torch.Tensor) -> bool:
    """Whether writes into it can be seen: tensors made in inference mode do not count them."""
    return (
        type(tensor) in _CLASSES
        and tensor.layout is torch.strided
        and not tensor.is_inference()
        and tensor.device.type in _DEVICES
    )
