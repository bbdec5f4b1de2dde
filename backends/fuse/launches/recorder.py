"""What a target gives for launch graphs: capturing what is launched on its device, and launching it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from framejit import _native


class NotCapturable(Exception):
    """Why a plan can't be a launch graph."""


class Recorder(Protocol):
    """Captures on one device."""

    @property
    def device(self) -> torch.device: ...

    def is_capturing(self) -> bool:
        """Whether somebody captures what is launched on the current stream."""

    def record(self, run: Callable[[], Any], is_alone: bool) -> tuple[_native.CudaGraph, Any]:
        """Capture what `run` launches, which is not carried out, and what it gives. What it allocates on the device is
        the graph's from then on, and that of other graphs, too, unless `is_alone`. Raises what `run` raises, and what
        torch raises where something can't be captured."""
