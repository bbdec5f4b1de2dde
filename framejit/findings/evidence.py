"""The call that met a graph break, kept so that a rewrite can be tried on the very same arguments."""
from __future__ import annotations

import copy
import sysconfig
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from framejit.events.place import Place
from framejit.late_dataclass import dataclass

MAX_BYTES = 64 * 2**20
"""Larger arguments are not copied, and rewrites then not checked."""

_LIBRARIES = (sysconfig.get_paths()["stdlib"], sysconfig.get_paths()["platstdlib"])


class Call:
    """A call whose capture began. Its arguments are copied once, when a break is met first, and shared by all evidence
    of it."""

    def __init__(self, fn: FunctionType, flat_args: tuple[Any, ...]) -> None:
        self.fn = fn
        self._flat_args: tuple[Any, ...] | None = flat_args
        self._copied: tuple[Any, ...] | None = None

    def args(self) -> tuple[Any, ...] | None:
        """Copies of what fills the argument slots; None where that can't be."""
        if self._flat_args is not None:
            self._copied, self._flat_args = copied(self._flat_args), None
        return self._copied


@dataclass
class Evidence:
    """A call that met a break."""

    call: Call
    place: Place
    """The innermost expression of the user's own code that led to the break, and the code it stands in."""
    code: CodeType

    @staticmethod
    def take(call: Call, call_sites: list[tuple[Place, CodeType]]) -> Evidence:
        place, code = next((site for site in call_sites if not is_library(site[0].file)), call_sites[0])
        call.args()
        return Evidence(call, place, code)

    @property
    def fn(self) -> FunctionType:
        return self.call.fn

    @property
    def args(self) -> tuple[Any, ...] | None:
        """The objects that fill the argument slots of `fn`, in order; None where they could not be copied."""
        return self.call.args()


def is_library(file: str) -> bool:
    """Whether a file is of the standard library, or of an installed package."""
    return file.startswith(("<frozen ", *_LIBRARIES)) or "site-packages" in file


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
