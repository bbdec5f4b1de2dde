"""Operations of framejit's own in graphs that are kept for other processes: where each is defined, and which of them
refer to something that another process has not."""

from __future__ import annotations

import importlib
from typing import Any, Final

import torch

NAMESPACE: Final = "framejit"
PYTHON, NUMPY = "python", "numpy"
"""What generators say their device is that are not torch's."""
_DEFINED_IN: Final = {
    **dict.fromkeys(("philox_bernoulli", "philox_uniform", "philox_normal"), "fuse.random_numbers.operations"),
    "direct_convolution": "fuse.graph.direct_convolution", "direct_linear": "fuse.graph.direct_linear",
    "bernoulli_like": "fuse.random_numbers.bernoulli_like", "bernoulli_by_number": "draws.bernoulli_by_number",
    "clock_read": "clock_reads", "drawn_by_numpy": "draws.numpy_random", "drawn_number": "draws.python_random",
    "drawn_numbers": "draws.python_random",
}
"""By the name of an operation the module that defines it."""
_GENERATOR_AT: Final = {"drawn_by_numpy": 0, "drawn_number": 3, "drawn_numbers": 5}
"""The position of the number of a generator. 0 is that of the module `random`, or `np.random`, in each process."""


def define(operation: str) -> None:
    """Import what defines an operation of framejit's own. Raises AttributeError where there is none of this name."""
    if operation not in _DEFINED_IN:
        raise AttributeError(f"framejit has no operation {operation}")
    importlib.import_module(f"framejit.backends.{_DEFINED_IN[operation]}")


def is_of_any_process(operation: torch._ops.OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether a call of one of framejit's operations does the same in another process."""
    name = operation._opname
    place = _GENERATOR_AT.get(name)
    return name in _DEFINED_IN and (place is None or args[place] == 0)
