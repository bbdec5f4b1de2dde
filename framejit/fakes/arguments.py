"""The tensors among the arguments and results of operations."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in the arguments of an operation, in lists and tuples too."""
    for value in tree:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors_in(value)
