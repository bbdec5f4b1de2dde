"""The states of the random number generators a program commonly draws from."""
from __future__ import annotations

import random
import sys
from collections.abc import Callable

import torch


def now() -> Callable[[], None]:
    """A function that sets the generators of Python, numpy and torch back to where they are now."""
    python, cpu = random.getstate(), torch.random.get_rng_state()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    numpy = sys.modules.get("numpy")
    array = numpy.random.get_state() if numpy is not None else None

    def restore() -> None:
        random.setstate(python)
        torch.random.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state_all(cuda)
        if numpy is not None:
            numpy.random.set_state(array)

    return restore
