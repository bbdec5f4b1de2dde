"""Which dimensions of which inputs a capture does not assume the sizes of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Final

import torch

from framejit import _native as native
from framejit.config import config
from framejit.guards.guard import GuardRecord
from framejit.guards.sources import MODULE_TABLES, ArgSource, KeySource, Source
from framejit.guards.tensor_facts import TensorFacts
from framejit.late_dataclass import dataclass
from framejit.marks import MARK
from framejit.symbols.conditions import LEAST
from framejit.symbols.expression import INFINITE
from framejit.symbols.open_dim import OpenDim

if TYPE_CHECKING:
    from framejit.capture.frame_compilation import FrameCompilation

DYNAMO_MARK: Final = "_dynamo_dynamic_indices"
"""The attribute that torch._dynamo.mark_dynamic sets, which programs may have called already."""
ANY_INDEX: Final = "[*]"
_LENGTH: Final = "len("  # as CallSource says it
_KEYS: Final = "tuple("
_EVER_NEW: Final = "ever new: "


@dataclass(frozen=True)
class OwnChange:
    """Captured code leaves another number at the source named, or, where `sizes` has any, a tensor of other sizes: for
    each such dimension the size now and the next call's. Where nothing was before, they are the size of an input."""

    source_name: str
    sizes: tuple[tuple[int, int, int], ...] = ()


@dataclass
class DynamicDims:
    """Which sizes of a function's inputs are assumed, and which are left open, when a capture of it begins.

    `everything` is `optimize(dynamic=True)`; `assumed` has, by the name of an input's source, the sizes of each
    dimension that entries were made for, `strides` the strides of each that did not follow from sizes, and `opened` and
    `opened_strides` what an entry leaves open; `growing` has those of which captured code itself changes the size, and
    `own_sizes` what these are now and will be; `never` is `dynamic=False`, or a backend that can't do without the
    sizes.
    """

    everything: bool = False
    never: bool = False
    assumed: dict[str, list[set[int]]] = field(default_factory=dict)
    strides: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    opened_strides: set[tuple[str, int]] = field(default_factory=set)
    opened: dict[str, int] = field(default_factory=dict)
    growing: dict[str, set[int]] = field(default_factory=dict)
    own_sizes: set[int] = field(default_factory=set)

    @staticmethod
    def of_compilation(compilation: FrameCompilation) -> DynamicDims:
        """By the options of `optimize`, and by the sizes for which the function has been compiled already."""
        options = compilation.options
        if options.dynamic is False or compilation.points.sizes_known:
            return DynamicDims(never=True)
        found = DynamicDims(bool(options.dynamic))
        for entry in compilation.owner.entries:
            found._note(entry.tag.records)
        return found

    def _note(self, records: Sequence[GuardRecord]) -> None:
        """Take in the sizes that an entry assumes, and those it leaves open."""
        for record in records:
            facts = record.expected
            if record.check == native.C_TENSOR and isinstance(facts, TensorFacts):
                sizes = self.assumed.setdefault(record.source_name, [])
                sizes.extend(set() for _ in range(len(sizes), len(facts.shape)))
                for dim, size in enumerate(facts.shape):
                    sizes[dim].add(size)
                for dim, stride in _strides_apart(facts.shape, facts.strides or ()):
                    place = record.source_name, dim
                    self.strides.setdefault(place, set()).add(stride)
                    if facts.free_strides >> dim & 1:
                        self.opened_strides.add(place)
                self.opened[record.source_name] = self.opened.get(record.source_name, 0) | facts.free_sizes

    def is_news(self, change: OwnChange) -> bool:
        """Whether there is something about sizes in `change` that may make a difference."""
        known = self.growing.get(among_alike(change.source_name), set())
        return not self.never and config.dynamic_after > 0 and not known.issuperset(dim for dim, *_ in change.sizes)

    def learn(self, change: OwnChange) -> None:
        """Take in sizes that captured code changes."""
        for dim, *sizes in change.sizes:
            self.growing.setdefault(among_alike(change.source_name), set()).add(dim)
            self.own_sizes.update(sizes)

    def of(self, tensor: torch.Tensor, source: Source) -> dict[int, OpenDim]:
        """The dimensions of an input that are to be symbols; never those of size 0 or 1, nor those of a module's
        parameters and buffers."""
        if self.never or type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return {}
        growing, opened = {*self._growing(tensor, source)}, self.opened.get(source.name(), 0)
        wanted = dict.fromkeys((*growing, *self._changing(tensor, source, opened)), (LEAST, INFINITE))
        if self.everything and not is_of_module(source):
            wanted.update(dict.fromkeys(range(tensor.dim()), (LEAST, INFINITE)))
        wanted.update(dict.fromkeys(getattr(tensor, DYNAMO_MARK, ()), (LEAST, INFINITE)))
        wanted.update(getattr(tensor, MARK, {}))
        return {
            dim: OpenDim((low, high), dim in growing, bool(opened >> dim & 1))
            for dim, (low, high) in sorted(wanted.items())
            if dim < tensor.dim() and low <= tensor.shape[dim] <= high
        }

    def strides_changed(self, tensor: torch.Tensor, source: Source) -> dict[int, bool]:
        """The dimensions of an input whose strides, which did not follow from its sizes, were others in earlier
        entries; True for those that one leaves open already, which did not fit."""
        if self.never or not self.strides or type(tensor) is not torch.Tensor or tensor.layout != torch.strided:
            return {}
        if config.dynamic_after <= 0 or is_of_module(source):
            return {}
        name = source.name()
        return {
            dim: (name, dim) in self.opened_strides
            for dim, stride in enumerate(tensor.stride())
            if self.strides.get((name, dim), {stride}) != {stride}
        }

    def leaves_open(self, number: float, source: Source) -> bool:
        """Whether a number that has not changed so far is not assumed: with `dynamic=True` an int argument that means
        nothing else to torch's operators."""
        return self.everything and type(number) is int and number >= LEAST and type(source) is ArgSource

    def _growing(self, tensor: torch.Tensor, source: Source) -> Iterable[int]:
        """The dimensions that captured code changes; where it changes some, those of other tensors that have their
        sizes."""
        if not self.growing:
            return ()
        growing = self.growing.get(among_alike(source.name()))
        if growing is not None or is_of_module(source):
            return growing or ()
        return (dim for dim, size in enumerate(tensor.shape) if size in self.own_sizes)

    def _changing(self, tensor: torch.Tensor, source: Source, opened: int) -> Iterator[int]:
        """The dimensions that have come in config.dynamic_after sizes with this one, or that are among those (bits)
        of which an entry leaves the size open."""
        for dim, (size, sizes) in enumerate(zip(tensor.shape, self.assumed.get(source.name(), ()))):
            if opened >> dim & 1 or 0 < config.dynamic_after <= len(sizes | {size}):
                yield dim


def _strides_apart(shape: Sequence[int], strides: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The dimensions that do not lie side by side in memory, with their strides."""
    dense = 1
    for stride, size, dim in sorted(zip(strides, shape, range(len(strides)))):
        if stride != dense:
            yield dim, stride
        dense = stride * size


def among_alike(source_name: str) -> str:
    """What the names of one part have in common in objects that stand in a list, as the layers of a cache do."""
    return re.sub(r"\[-?\d+\]", ANY_INDEX, source_name)


def length_of(source_name: str) -> str:
    """Under which name the length of the list at a source is among the numbers that change."""
    return f"{_LENGTH}{source_name})"


def keys_of(source_name: str) -> str:
    """Under which name the keys of the dict at a source are among what changes."""
    return f"{_KEYS}{source_name})"


def ever_new(name: str) -> str:
    """Under which name it is among what changes that a number, or the length of a list, has been another one in call
    after call: to assume it would cost an entry each time."""
    return f"{_EVER_NEW}{name}"


def is_item(source_name: str) -> bool:
    """Whether a source is an item of a list or tuple."""
    return re.search(r"\[-?\d+\]$", source_name) is not None


def is_of_container(name: str) -> bool:
    """Whether it is the length of a list, or the keys of a dict, that changes; or how often something changes."""
    return name.startswith((_LENGTH, _KEYS, _EVER_NEW))


def is_of_module(source: Source | None) -> bool:
    """Whether a source leads to, or through, a parameter, buffer or submodule."""
    while source is not None:
        if isinstance(source, KeySource) and source.key.value in MODULE_TABLES:
            return True
        source = source.base
    return False
