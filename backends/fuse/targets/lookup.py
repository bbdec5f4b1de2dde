"""Which target a device has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import torch

from framejit.backends.fuse.targets.target import Target, WithoutMemory

if TYPE_CHECKING:
    from framejit.backends.fuse.launches.recorder import Recorder


def _cpu() -> type[Target]:
    from framejit.backends.fuse.targets.cpu import CpuTarget

    return CpuTarget


def _cuda() -> type[Target]:
    from framejit.backends.fuse.targets.cuda import CudaTarget

    return CudaTarget


_KINDS: Final[dict[str, Callable[[], type[Target]]]] = {"cpu": _cpu, "cuda": _cuda, "meta": lambda: WithoutMemory}
"""What gives the class of a kind's targets: each is imported with the first device of its kind."""
_targets: dict[torch.device, Target] = {}


def target_of(device: torch.device) -> Target:
    """The target that holds all that is known of a device; one object for each device."""
    target = _targets.get(device)
    if target is None:
        target = _targets[device] = _KINDS.get(device.type, lambda: Target)()(device)
    return target


def recorder_of(device: torch.device) -> Recorder | None:
    """What captures launches on a device; None where none are."""
    return target_of(device).recorder


def source_suffix(language: str) -> str:
    """How the names of files end that hold kernels in a language."""
    kinds = [kind() for kind in _KINDS.values()]
    return next((kind.suffix for kind in kinds if kind.language == language), Target.suffix)


@contextmanager
def standing_in(kind: str, target: type[Target]) -> Iterator[None]:
    """In the block, another target is that of a kind of device. Graphs that are compiled before and after it are not
    touched."""
    before, known = _KINDS.get(kind), dict(_targets)
    _KINDS[kind] = lambda: target
    _targets.clear()
    try:
        yield
    finally:
        _targets.clear()
        _targets.update(known)
        del _KINDS[kind]
        if before is not None:
            _KINDS[kind] = before
