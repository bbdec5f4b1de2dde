"""Which dimensions of which inputs a capture does not assume the sizes of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import torch

from framejit import _native as native
from framejit.backends.symbolic_sizes import takes_symbolic_sizes
from framejit.config import config
from framejit.guards.guard import GuardRecord, TensorFacts
from framejit.guards.sources import MODULE_TABLES, KeySource, Source
from framejit.marks import MARK
from framejit.symbols.conditions import LEAST
from framejit.symbols.expression import INFINITE, Bounds

if TYPE_CHECKING:
    from framejit.capture.frame_compilation import FrameCompilation

DYNAMO_MARK: Final = "_dynamo_dynamic_indices"
"""That of torch._dynamo.mark_dynamic, which programs may have called already."""
Dims = dict[int, Bounds]
"""For each dimension the sizes that are expected, both ends included."""


@dataclass
class DynamicDims:
    """What is known of a function's inputs when a capture of it begins.

    `everything` is `optimize(dynamic=True)`; `changing` has, by the name of an input's source, the dimensions whose sizes have changed between calls;
    `never` is `dynamic=False`, or a backend that wants to know the sizes.
    """

    everything: bool = False
    never: bool = False
    changing: dict[str, set[int]] = field(default_factory=dict)

    @staticmethod
    def of_compilation(compilation: FrameCompilation) -> DynamicDims:
        """By the options of `optimize`, and by the sizes for which the function has been compiled already."""
        options = compilation.options
        if options.dynamic is False or not takes_symbolic_sizes(options.backend):
            return DynamicDims(never=True)
        return DynamicDims(bool(options.dynamic), changing=_changing_sizes([entry.tag.records for entry in compilation.owner.entries]))

    def of(self, tensor: torch.Tensor, source: Source) -> Dims:
        """The dimensions of an input that are to be symbols; never those of size 0 or 1, nor those of a module's parameters and buffers."""
        if self.never or type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return {}
        wanted: Dims = dict.fromkeys(self.changing.get(source.name(), ()), (LEAST, INFINITE))
        if self.everything and not _is_of_module(source):
            wanted.update(dict.fromkeys(range(tensor.dim()), (LEAST, INFINITE)))
        wanted.update(dict.fromkeys(getattr(tensor, DYNAMO_MARK, ()), (LEAST, INFINITE)))
        wanted.update(getattr(tensor, MARK, {}))
        return {dim: (low, high) for dim, (low, high) in sorted(wanted.items()) if dim < tensor.dim() and low <= tensor.shape[dim] <= high}


def _changing_sizes(entries: list[list[GuardRecord]]) -> dict[str, set[int]]:
    """By source, the dimensions for whose sizes config.dynamic_after entries have been made, or of which one entry leaves the size open."""
    seen: dict[tuple[str, int], set[int]] = {}
    changing: dict[str, set[int]] = {}
    for records in entries:
        for record in records:
            facts = record.expected
            if record.check == native.C_TENSOR and isinstance(facts, TensorFacts):
                for dim, size in enumerate(facts.shape):
                    sizes = seen.setdefault((record.source_name, dim), set())
                    sizes.add(size)
                    if facts.free_sizes >> dim & 1 or 0 < config.dynamic_after <= len(sizes):
                        changing.setdefault(record.source_name, set()).add(dim)
    return changing


def _is_of_module(source: Source | None) -> bool:
    while source is not None:
        if isinstance(source, KeySource) and source.key.value in MODULE_TABLES:
            return True
        source = source.base
    return False
