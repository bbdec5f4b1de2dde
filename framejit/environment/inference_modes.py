"""The objects that stand for inference mode while it is on around a graph break, and in graphs."""

from __future__ import annotations

from typing import Any

import torch

_C = torch._C

ThreadModes = tuple[bool, bool, bool, bool, int, int]
"""All that an inference mode changes of a thread: whether gradients are recorded, whether inference mode is on, whether
forward gradients are, whether backward passes run in several threads; the dispatch keys included and excluded."""


def thread_modes() -> ThreadModes:
    return (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _C._is_fwd_grad_enabled(),
        _C._is_multithreading_enabled(), _C._dispatch_tls_local_include_set().raw_repr(),
        _C._dispatch_tls_local_exclude_set().raw_repr(),
    )


class EnteredInferenceMode(_C._InferenceMode):
    """torch's guard, which is on from when it is made until it is left or let go of, and tells what its end puts
    back."""

    def __init__(self, mode: bool) -> None:
        self.restores: ThreadModes | None = thread_modes()
        super().__init__(mode)

    def __exit__(self, *raised: Any) -> None:
        self.restores = None
        super().__exit__(*raised)


class _InsideOfAnother(_C._InferenceMode):
    """A guard that ends before the one around it also where both are let go of, which end with the variables of a graph
    that raises: each end puts back what held at its start, so that the outer one's has to come last."""

    def __init__(self, mode: bool, outer: _C._InferenceMode) -> None:
        self._outer = outer
        super().__init__(mode)

    def __del__(self) -> None:
        self.__exit__(None, None, None)


def enter_inside(mode: bool, outer: _C._InferenceMode) -> _C._InferenceMode:
    """What graphs enter a mode by inside of another one that they have entered."""
    return _InsideOfAnother(mode, outer)


def left_inference_mode(mode: bool) -> EnteredInferenceMode:
    """One that was entered and left."""
    made = EnteredInferenceMode(mode)
    made.__exit__(None, None, None)
    return made


def restored_by(mode: EnteredInferenceMode) -> ThreadModes | None:
    """What the end of a mode puts back; None for one that was left."""
    return mode.restores
