"""The call that met a graph break, kept so that a rewrite can be tried on the very same arguments."""
from __future__ import annotations

import copy
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import torch

from framejit.events.place import Place

MAX_BYTES = 64 * 2**20
"""Larger arguments are not copied, and rewrites then not checked."""

_LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"])


@dataclass
class Evidence:
    """A call of `fn` that met a break. `args` fill its argument slots in order; None where they could not be copied."""

    fn: FunctionType
    args: tuple[Any, ...] | None
    place: Place
    """The innermost expression of the user's own code that led to the break, and the code it stands in."""
    code: CodeType

    @staticmethod
    def take(fn: FunctionType, flat_args: tuple[Any, ...], call_sites: list[tuple[Place, CodeType]]) -> Evidence:
        place, code = next((site for site in call_sites if not _is_library(site[0].file)), call_sites[0])
        return Evidence(fn, copied(flat_args), place, code)


def _is_library(file: str) -> bool:
    return file.startswith(_LIBRARIES) or "site-packages" in file


def copied(args: tuple[Any, ...], share_modules: bool = True) -> tuple[Any, ...] | None:
    """Copies that later writes do not reach; modules are shared unless asked for, since they may be large."""
    if sum(t.nbytes for arg in args for t in _tensors(arg)) > MAX_BYTES:
        return None
    memo: dict[int, Any] = {}
    if share_modules:
        memo.update({id(arg): arg for arg in args if isinstance(arg, torch.nn.Module)})
    try:
        return copy.deepcopy(args, memo)
    except Exception:  # a generator, a file, a tensor with a history: such arguments can't be had twice
        return None


def _tensors(arg: Any) -> Iterator[torch.Tensor]:
    if isinstance(arg, torch.Tensor):
        yield arg
    elif isinstance(arg, (list, tuple)):
        for item in arg:
            yield from _tensors(item)
    elif isinstance(arg, dict):
        for item in arg.values():
            yield from _tensors(item)
