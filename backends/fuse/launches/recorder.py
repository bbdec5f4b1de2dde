"""What a target gives for launch graphs: capturing what is launched on its device, and launching it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch


class NotCapturable(Exception):
    """Why a plan can't be a launch graph."""


@dataclass(frozen=True)
class Recording:
    """A graph that was captured and can be launched."""

    executable: int
    """The address of the instantiated graph, a CUgraphExec; it lives as long as `replay`."""
    replay: Callable[[], object]
    """Launches it on the device's current stream."""


class Recorder(Protocol):
    """Captures on one device."""

    @property
    def device(self) -> torch.device: ...

    def is_capturing(self) -> bool:
        """Whether somebody captures what is launched on the current stream."""

    def record(self, run: Callable[[], Any]) -> tuple[Recording, Any]:
        """Capture what `run` launches, which is not carried out, and what it gives. What it allocates on the device is
        the graph's from then on. Raises what `run` raises, and what torch raises where something can't be captured."""
