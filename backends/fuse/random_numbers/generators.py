"""The generators that ATen draws random numbers from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch


def generator_of(device: torch.device) -> torch.Generator:
    """The one that is drawn from for tensors of a device where the program names no other."""
    return torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator


@contextmanager
def drawing_in_vain(generators: Sequence[Any]) -> Iterator[None]:
    """Afterwards the generators are where they are now."""
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states):
            generator.set_state(state)
